"""Builds the state of a pool's rollout and the list of its revisions from Kubernetes objects. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead.instances import Role
from fairlead.revisions import revision_data, rolled_back
from fairlead.tables import PoolKey
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.rollouts import RoleRollout, Rollout, TemplateRevision


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """A ControllerRevision of a pool; `data` has the form of `fairlead.revisions.revision_data`."""

    name: str
    number: int
    created_at: datetime | None
    data: Mapping[str, Any]


def rollout_of(pool: PoolKey, spec: Mapping[str, Any], status: Mapping[str, Any], revisions: Iterable[StoredRevision]) -> Rollout:
    """Return the state of the rollout according to the pool's status, and the pool's revisions, newest first."""
    conditions = status.get("conditions") or ()
    progressing: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Progressing"), {})
    under_way = status.get("rollout") or {}
    ordered = sorted(revisions, key=lambda one: one.number, reverse=True)
    return Rollout(
        pool=str(pool),
        under_way=bool(under_way),
        paused=bool((spec.get("rollout") or {}).get("paused")),
        regressed=bool(under_way.get("regressed")),
        began_at=instant(under_way.get("beganAt")),
        reason=str(progressing.get("reason") or ""),
        message=str(progressing.get("message") or ""),
        roles=[_role(role) for role in status.get("roles") or () if role.get("name") in set(Role)],
        revisions=[_told(spec, status, one) for one in ordered],
    )


def instant(written: object) -> datetime | None:
    """Parse a time as Kubernetes writes it; None if there is no time."""
    return datetime.fromisoformat(written) if isinstance(written, str) and written else None


def _role(role: Mapping[str, Any]) -> RoleRollout:
    counts = {to: int(role.get(name) or 0) for to, name in (("desired", "desired"), ("serving", "ready"), ("updated", "updated"))}
    return RoleRollout(role=Role(role["name"]), **counts)


def _told(spec: Mapping[str, Any], status: Mapping[str, Any], one: StoredRevision) -> TemplateRevision:
    return TemplateRevision(
        number=one.number,
        name=one.name,
        created_at=one.created_at,
        in_force=revision_data(spec) == one.data,
        completed=status.get("currentRevision") == one.name,
        diff=diff(spec, rolled_back(spec, one.data), "/spec"),
    )
