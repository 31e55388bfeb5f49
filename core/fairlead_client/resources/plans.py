"""Plans: a change is previewed, applied and undone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fairlead.instances import Role
from fairlead_client.resources.access import AccessRole


class PlanKind(StrEnum):
    """The kind of change that a plan makes.

    `scale` changes the number of instances; `policy`, `slo`, `early-rejection`, `ring` (anchors per instance),
    `scaling` and `ratio` (what changes instances without a person) change a part of the pool's spec; `cordon` takes one
    instance out of service without replacing it, and `uncordon` lets it serve again; `schedule` creates, edits,
    deletes, pauses or resumes a schedule, skips a start of it or adds one. `drain` empties one instance and replaces
    it, and `undrain` takes that back; `rollout` pauses or resumes a rollout or changes its bounds; `rollback` gives the
    spec the engine and templates of a former revision. `engines` adds an engine to a pool whose engines run already, or
    takes one out. `migrations` pauses a pool's migrations, or lets them go on. `delete` deletes
    the pool; undoing that creates it again with the same spec, and what was lost with it stays lost. `move` gives a
    session another home, and `unpin` takes its home away. `weight` changes the part of the keys that one instance has
    on the hash ring. `revert` gives the whole spec what it said in a former revision, as the list of revisions numbers
    them.
    """

    SCALE = "scale"
    POLICY = "policy"
    SLO = "slo"
    EARLY_REJECTION = "early-rejection"
    RING = "ring"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    SCHEDULE = "schedule"
    SCALING = "scaling"
    RATIO = "ratio"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    ENGINES = "engines"
    MIGRATIONS = "migrations"
    DELETE = "delete"
    MOVE = "move"
    UNPIN = "unpin"
    WEIGHT = "weight"
    REVERT = "revert"


NEEDED_ROLE: Mapping[PlanKind, AccessRole] = MappingProxyType(
    {
        PlanKind.SCALE: AccessRole.OPERATOR,
        PlanKind.POLICY: AccessRole.ADMIN,
        PlanKind.SLO: AccessRole.ADMIN,
        PlanKind.EARLY_REJECTION: AccessRole.ADMIN,
        PlanKind.RING: AccessRole.ADMIN,
        PlanKind.CORDON: AccessRole.OPERATOR,
        PlanKind.UNCORDON: AccessRole.OPERATOR,
        PlanKind.SCHEDULE: AccessRole.OPERATOR,
        PlanKind.SCALING: AccessRole.ADMIN,
        PlanKind.RATIO: AccessRole.ADMIN,
        PlanKind.DRAIN: AccessRole.OPERATOR,
        PlanKind.UNDRAIN: AccessRole.OPERATOR,
        PlanKind.ROLLOUT: AccessRole.OPERATOR,
        PlanKind.ROLLBACK: AccessRole.OPERATOR,
        PlanKind.ENGINES: AccessRole.OPERATOR,
        PlanKind.MIGRATIONS: AccessRole.OPERATOR,
        PlanKind.DELETE: AccessRole.ADMIN,
        PlanKind.MOVE: AccessRole.OPERATOR,
        PlanKind.UNPIN: AccessRole.OPERATOR,
        PlanKind.WEIGHT: AccessRole.OPERATOR,
        PlanKind.REVERT: AccessRole.ADMIN,
    }
)
"""The role that a person needs to plan, apply or undo a change of a kind; of a schedule, see `role_for_schedule`."""

_FOR_ADMINS = frozenset({"slo", "earlyRejection", "ratio"})


def role_for_schedule(subjects: Iterable[str]) -> AccessRole:
    """The role needed to change a schedule: the highest of the plan kinds for the fields that it sets."""
    return NEEDED_ROLE[PlanKind.SCHEDULE] if _FOR_ADMINS.isdisjoint(subjects) else AccessRole.ADMIN


class ScheduleAction(StrEnum):
    """What a plan of kind `schedule` does.

    `set` creates the schedule of this name or puts `spec` in its place, as a manifest writes it. `skip` and `run` take
    the instant `start`.
    """

    SET = "set"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    SKIP = "skip"
    RUN = "run"


class EngineAction(StrEnum):
    """What a plan of kind `engines` does: `add` takes a `url`, a `name` and a `weight` if wanted, `remove` a `name`."""

    ADD = "add"
    REMOVE = "remove"


class PlanState(StrEnum):
    """The fate of a plan: an open one can be applied; the others are closed for good."""

    OPEN = "open"
    APPLIED = "applied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """The expected effect of applying, estimated from present sessions and traffic.

    Sessions of a removed instance move to others, or are lost (`sessions_lost`) where no instance is left to take
    them. `warnings` name what users, caches or targets may lose, `notes` what else the change means.
    `predicted_attainment` is the share of requests whose TTFT and TPOT would be in time, `predicted_refusals` the
    share that would be refused early, both as `prediction_basis` says; None where there is no traffic or the change
    does not concern it, and then nothing is promised.
    """

    instances_added: int = 0
    instances_removed: int = 0
    victims: list[str] = field(default_factory=list)
    sessions_moved: int = 0
    cache_tokens_lost: int = 0
    requests_in_flight: int = 0
    """Requests in flight at the instances that leave; they finish there."""
    key_share_moved: float = 0.0
    """Share (0-1) of the keys on the hash ring that change their owner, mean over both rings."""
    predicted_attainment: float | None = None
    predicted_refusals: float | None = None
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heavy: bool = False
    """Leaves nobody to serve, or moves more than 10 % of sessions; applying it then needs the pool's name and a reason.
    """
    sessions_lost: int = 0
    prediction_basis: str | None = None
    for_admins: bool = False
    """Changes a schedule that sets SLO, early rejection or the ratio, before or after: that needs an admin as those do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A previewed change of `target`, an object such as `InferencePool default/chat` or `Pod default/chat-bk2xz4`.

    It can be applied until `expires_at`, unless the object changed meanwhile.
    """

    id: str
    pool: str
    kind: PlanKind
    target: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    state: PlanState
    diff: list[dict[str, Any]]
    effect: PlanEffect
    owner: str | None
    patch: str
    """The change as a kubectl-ready merge patch (YAML), to copy when GitOps owns the object."""
    applied_at: datetime | None = None
    applied_by: str | None = None
    undo_until: datetime | None = None
    undo_of: str | None = None


def needed_role(plan: Plan) -> AccessRole:
    """The role that a person needs to apply or undo a plan, or to make it again."""
    return AccessRole.ADMIN if plan.effect.for_admins else NEEDED_ROLE[plan.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The change to plan.

    `scale` takes `replicas`, and `role` in a pool of two roles. `cordon`, `uncordon`, `drain` and `undrain` take
    `instance`. `rollback` takes the number of a `revision` (none = the newest that differs from the spec), and `role`
    to give back only that role's template; `revert` the number of a `revision` of the whole spec. `move` takes a
    `session` and the `instance` it is to live at, `unpin` a `session`. `delete` takes nothing. The other kinds take
    `fields`: fields of their section of the spec as a manifest writes them, such as `{"ttft": "3s"}`. A field that is
    left out stays as it is, null goes back to its default.
    `weight` takes an `instance`, and in `fields` its `weight` beside instances of weight 1, 0.01 to 100 (null = 1).
    `schedule` takes in `fields` the `name` of a schedule, an `action` of ScheduleAction, and its `spec` or `start`;
    `engines` an `action` of EngineAction, and what that takes.
    `scale` and `slo` also take the `simulation` by which advice found the change: the plan then shows that one.
    """

    kind: PlanKind
    replicas: int | None = None
    role: Role | None = None
    instance: str | None = None
    fields: dict[str, Any] | None = None
    revision: int | None = None
    session: str | None = None
    simulation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """For a heavy plan `confirm` must equal the pool's name and `reason` must be given."""

    confirm: str | None = None
    reason: str | None = None
