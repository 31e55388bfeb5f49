"""A finding: its cause, how much it harms, one sentence, where the evidence is, and the change that would help."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fairlead.instances import Role


class Level(StrEnum):
    """The severity of a finding, judged by the pool's own objectives."""

    BAD = "bad"
    """More requests miss the objectives than the percentile allows, or the pool cannot serve, or no router reports on
    the pool.
    """
    WARN = "warn"
    """The pool meets its objectives, but the problem already costs users something, or will soon break this or another
    pool's objectives.
    """
    NOTE = "note"
    """No request is harmed: something exists that is not needed."""


class HarmUnit(StrEnum):
    """The unit of a harm. Harms of different units are never compared with each other."""

    REQUESTS = "requests/s"
    """Requests per second that miss the objectives: late, refused or failed."""
    INSTANCES = "instances"
    """The harm is a number of instances: desired instances that do not serve, or serving instances that are not needed.
    """
    WAITED_SECONDS = "seconds/h"
    """Extra seconds that users waited, per hour."""
    ROUTERS = "routers"
    """Number of routers that are silent, or that decide alone, without the decisions of other routers."""
    SILENT_SECONDS = "seconds"
    """Seconds since the last report of a router or an operator."""
    ERROR = "share"
    """Mean error of predictions, as a share of the predicted value."""
    HITS = "hits"
    """Share (0-1) of the prompt tokens that are computed although a cache could have supplied them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    amount: float
    unit: HarmUnit


class Cause(StrEnum):
    """The cause of a finding."""

    SATURATED = "Saturated"
    PROMPTS_TOO_LONG = "PromptsTooLong"
    REFUSED = "Refused"
    LATE_FIRST_TOKENS = "LateFirstTokens"
    SLOW_TOKENS = "SlowTokens"
    HOT_INSTANCE = "HotInstance"
    RATIO_OFF = "RatioOff"
    LOSING_MOVES = "LosingMoves"
    INSTANCES_LOST = "InstancesLost"
    INSTANCE_FAILING = "InstanceFailing"
    ENGINE_STALLED = "EngineStalled"
    ENGINE_SLOW = "EngineSlow"
    KV_NOT_HANDED_ON = "KvNotHandedOn"
    PREDICTIONS_OFF = "PredictionsOff"
    FIGURE_OFF = "FigureOff"
    HOST_CACHE_WOULD_HELP = "HostCacheWouldHelp"
    BUDGET_BURNS = "BudgetBurns"
    FIGURES_BEHIND = "FiguresBehind"
    NO_ROUTER = "NoRouter"
    ROUTER_SILENT = "RouterSilent"
    ROUTERS_APART = "RoutersApart"
    OPERATOR_SILENT = "OperatorSilent"
    CONDITION_NOT_MET = "ConditionNotMet"
    SCALING_ADVISED = "ScalingAdvised"


class EvidenceKind(StrEnum):
    """The kind of page that shows the figures of a finding."""

    HEATMAP = "heatmap"
    REJECTIONS = "rejections"
    DECISIONS = "decisions"
    MIGRATIONS = "migrations"
    INSTANCE = "instance"
    INSTANCES = "instances"
    SLO = "slo"
    PREDICTOR = "predictor"
    SCALING = "scaling"
    POOL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The page that shows the figures of a finding. `seconds` is the time span of these figures, counted back from now;
    `metric` is the metric of a heatmap.
    """

    kind: EvidenceKind
    seconds: float
    instance: str | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that can be planned. It has the fields of a plan's request; `words` is a short text for a button, such
    as `7 replicas`.
    """

    kind: str
    words: str
    replicas: int | None = None
    role: Role | None = None
    instance: str | None = None
    fields: dict[str, Any] | None = None
    simulation: str | None = None
    """Id of the simulation that confirms the remedy; its plan shows the simulation too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, its cause and its remedy.

    `subject` distinguishes findings with the same cause in one pool: an instance, a role or a reason; empty if there is
    only one. `symptom` names the observation if another finding may explain it. `explains` lists the symptoms of other
    findings that this cause explains.
    """

    pool: str
    cause: Cause
    subject: str = ""
    level: Level
    harm: Harm
    sentence: str
    evidence: Evidence
    remedy: Remedy | None = None
    symptom: str | None = None
    explains: frozenset[str] = frozenset()


LATE_FIRST_TOKENS = "late first tokens"
SLOW_TOKENS = "slow tokens"


def refused(reason: str) -> str:
    """Return the symptom "requests are refused for this reason"."""
    return f"refused {reason}"


def condition(kind: str, reason: str) -> str:
    """Return the symptom "this condition is not as it should be"."""
    return f"condition {kind} {reason}"


def wrong_figure(quantity: str) -> str:
    """Return the symptom "predictions use a wrong figure"."""
    return f"wrong {quantity}"


def apart(why: str) -> str:
    """Return the symptom "routers decide alone for this reason"."""
    return f"apart {why}"


def failing(instance: str) -> str:
    """Return the symptom "an instance fails requests"."""
    return f"failing {instance}"
