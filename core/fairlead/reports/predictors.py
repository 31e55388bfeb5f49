"""Models of learning policies as routers report them: the figures of each, its content, and how well the previous model
predicted.
"""

from dataclasses import dataclass, field

from fairlead.tables import PoolKey

LARGEST_MODEL_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """The figures that a router had when it began to predict with a model.

    `held_out_error_seconds` is the new model's mean absolute error on samples it was not trained on, and
    `spread_seconds` the error of a constant prediction, the samples' mean. The other fields are about the previous
    model: `error_seconds` of its predictions for the last few hundred requests, `formula_error_seconds` of the router's
    own formula for the same requests (None from a router that does not report it), the requests' mean TTFT, `drift` of
    their features from its training in deviations, the number of choices by the model, and by the heuristic for each
    reason. None if nothing was observed.
    """

    router: str
    round: int
    samples_seen: int
    trained_on: int
    held_out_error_seconds: float | None = None
    spread_seconds: float | None = None
    error_seconds: float | None = None
    formula_error_seconds: float | None = None
    mean_ttft_seconds: float | None = None
    drift: float | None = None
    learned_choices: int = 0
    heuristic_choices: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """A trained model that a router posts; `content` is in the format of `fairlead.predictors.model_bytes`.

    The router chooses the `id`, so a model that is sent twice is stored once.
    """

    id: str
    pool: PoolKey
    at: float
    figures: ModelFigures
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModel:
    """The newest model of a pool, trained by any router; version 0 and None without a model."""

    version: int = 0
    content: bytes | None = None
