"""Rollouts: the progress of the present template, and the revisions to which a pool can be rolled back."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead.instances import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRollout:
    """A role's numbers of instances: desired instances, serving instances, and instances with the present template
    (without draining instances).
    """

    role: Role
    desired: int
    serving: int
    updated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRevision:
    """An engine and templates that the pool has or had; a higher `number` is newer.

    `in_force` = the spec has this engine and these templates now. `completed` = the last rollout that all instances
    finished was to this revision. `diff` is the change of the spec that a roll-back would make, like a JSON patch: a
    list of {op, path, before, after}.
    """

    number: int
    name: str
    created_at: datetime | None
    in_force: bool
    completed: bool
    diff: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rollout of a pool, as its object reports it; `revisions` are newest first.

    `under_way` = at least one instance has a template other than the present template. `reason` and `message` are
    copied from the condition Progressing. `began_at` None = no rollout is in progress.
    """

    pool: str
    under_way: bool
    paused: bool
    regressed: bool
    began_at: datetime | None
    reason: str
    message: str
    roles: list[RoleRollout]
    revisions: list[TemplateRevision]
