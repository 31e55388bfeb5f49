"""The models with which a pool's routers predict TTFTs: a version for each trained model."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.predictors import ModelFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorModel:
    """A model, and the results of the previous model; see `ModelFigures`. `stored_bytes` is None if only the figures
    are still stored.
    """

    version: int
    at: datetime
    figures: ModelFigures
    stored_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The newest models of a pool, newest first. `learns` says whether the pool's present policy learns."""

    pool: str
    policy: str
    learns: bool
    models: list[PredictorModel]
