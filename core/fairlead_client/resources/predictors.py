"""The models by which a pool's routers predict TTFTs: a version for each that was trained."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.predictors import ModelFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorModel:
    """A model, and how the one before it did; see `ModelFigures`. `stored_bytes` is None once only its figures are
    kept.
    """

    version: int
    at: datetime
    figures: ModelFigures
    stored_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The newest models of a pool, newest first. `learns` says whether its policy does now."""

    pool: str
    policy: str
    learns: bool
    models: list[PredictorModel]
