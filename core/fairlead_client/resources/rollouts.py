"""Rollouts: how far the present template has come, and the revisions that a pool can go back to."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead.instances import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRollout:
    """A role's instances: wanted, serving, and with the present template (those that drain are not counted)."""

    role: Role
    desired: int
    serving: int
    updated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRevision:
    """Engine and templates that the pool has or had; a higher number is newer.

    `in_force` = the spec has them now. `completed` = they were the last that all instances had. `diff` is what going
    back to it would change in the spec, like a JSON patch: a list of {op, path, before, after}.
    """

    number: int
    name: str
    created_at: datetime | None
    in_force: bool
    completed: bool
    diff: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rollout of a pool as its object reports it; `revisions` are newest first.

    `under_way` = an instance has another template than the present one. `reason` and `message` are those of the
    condition Progressing. `began_at` None = none is in progress.
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
