"""Models of learning policies as routers report them: each model's figures and content, and how well the previous model
predicted.
"""

from dataclasses import dataclass, field

from fairlead.tables import PoolKey

LARGEST_MODEL_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """The figures that a router had when it began to predict with a new model.

    `held_out_error_seconds` is the new model's mean absolute error on samples it was not trained on; `spread_seconds`
    is the error that the samples' mean would have as a constant prediction. All other errors and counts describe the
    previous model, over the last few hundred requests: `error_seconds` is its mean absolute error,
    `formula_error_seconds` the mean absolute error of the router's own formula (None from a router that does not report
    it), and `mean_ttft_seconds` the requests' mean TTFT. `drift` is the distance of the requests' features from the
    training samples, in standard deviations. `learned_choices` counts the choices by the model, `heuristic_choices` the
    choices by the heuristic for each reason. Errors are None if nothing was observed.
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
    """The newest model of a pool, whichever router trained it. If the pool has no model, the version is 0 and the model
    None.
    """

    version: int = 0
    content: bytes | None = None
