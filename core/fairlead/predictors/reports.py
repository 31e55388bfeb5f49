"""The report of a learning policy about itself: how often its model decided, which model it uses, and how wrong its
predictions were recently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead.predictors.models import Model


class HeuristicReason(StrEnum):
    """The reason why the policy's heuristic, and not its model, chose the instance for a request.

    `cold-start` there is no model yet · `stale-model` samples arrived, but the trainer delivered no new model ·
    `out-of-distribution` the request or the instances are outside the range of the training samples · `not-finite` the
    model's output was not a number · `unproven` the model was not compared with the router's own formula yet · `losing`
    the model errs more than the formula on the same requests, by a margin that depends on the policy · `shadow` the
    policy only observes.
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
    """Samples that were dropped because the learner did not collect them in time."""
    waiting_samples: int
    """Samples that the learner has not collected yet."""
    learned_choices: int
    heuristic_choices: Mapping[HeuristicReason, int] = field(default_factory=dict)
    model: Model | None = None
    samples_behind: int = 0
    """Samples that arrived since the model in use was adopted."""
    error_seconds: float | None = None
    """Mean absolute difference between the TTFT that the model predicted for a request and the request's actual TTFT.
    """
    formula_error_seconds: float | None = None
    """Mean absolute error of the router's own formula, which includes the instance's pace, for the requests of
    `error_seconds`.
    """
    mean_ttft_seconds: float | None = None
    """Mean actual TTFT of the requests of `error_seconds`."""
    drift: float | None = None
    """Distance between the features of recent samples and the features of the training samples, in standard deviations;
    see `Model.drift`.
    """
