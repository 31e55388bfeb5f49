"""The report of a learning policy about itself: how it decided, what its model is, and how wrong its predictions were
recently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead.predictors.models import Model


class HeuristicReason(StrEnum):
    """Why the heuristic chose and not the model.

    `cold-start` no model yet · `stale-model` samples arrived, but the trainer delivered no new model ·
    `out-of-distribution` the request or the instances are outside what it was trained on · `not-finite` the model's
    answer was not a number · `unproven` it was not compared with the router's own formula yet · `losing` it errs more
    than the formula on the same requests, by a margin that depends on the policy · `shadow` the policy only observes.
    """

    COLD_START = "cold-start"
    STALE_MODEL = "stale-model"
    OUT_OF_DISTRIBUTION = "out-of-distribution"
    NOT_FINITE = "not-finite"
    UNPROVEN = "unproven"
    LOSING = "losing"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningReport:
    """The state of a policy's learning. Counts start when the policy was built; errors and drift cover its last few
    hundred samples and are None without samples.
    """

    samples: int
    dropped_samples: int
    """Samples lost because they were not taken in time."""
    waiting_samples: int
    """Samples that the learner has not taken over yet."""
    learned_choices: int
    heuristic_choices: Mapping[HeuristicReason, int] = field(default_factory=dict)
    model: Model | None = None
    samples_behind: int = 0
    """Samples that arrived since the model in use was adopted."""
    error_seconds: float | None = None
    """Mean absolute difference between the TTFT predicted for a request and its actual TTFT."""
    formula_error_seconds: float | None = None
    """The same error for the router's own formula, which includes the instance's pace, over the same requests."""
    mean_ttft_seconds: float | None = None
    """Mean actual TTFT of the same requests."""
    drift: float | None = None
    """How far recent features have moved from those of the training; see `Model.drift`."""
