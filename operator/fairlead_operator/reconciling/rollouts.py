"""The rollout in progress: read from the pool's status, judged, and written back. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.instances import Role
from fairlead.pool_states import PoolObservations
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import DesiredPool, DesiredRole, Halt, ObservedInstance
from fairlead.reconciling.rollout_progress import Rollout, RolloutTrouble, halts, watch
from fairlead.schemas.writing import written
from fairlead_operator.times import format_time, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRound:
    """A pool's rollout in one round: as the status had it, and as it stands now."""

    before: Rollout | None
    now: Rollout | None
    trouble: tuple[RolloutTrouble, str] | None
    halted: bool

    def goal(self, desired: DesiredPool | None, former: Mapping[Role, str]) -> DesiredPool | None:
        """The planner's input: the desired roles, with the rollout's halt. `former` has the hashes of the templates
        that all instances had before, if known.
        """
        if desired is None or not self.halted:
            return desired
        roles = (replace(role, rollout=replace(role.rollout, halt=self._halt(role.role, former))) for role in desired.roles)
        return replace(desired, roles=tuple(roles))

    def _halt(self, role: Role, former: Mapping[Role, str]) -> Halt:
        regressed = self.now is not None and self.now.regressed
        updated = self.now.updated.get(role, 0) if self.now is not None and not regressed else 0
        return Halt(former_hash=former.get(role), updated=updated, regressed=regressed)

    def news(self) -> tuple[str, str] | None:
        """Reason and words of the event to record; None when nothing happened that is worth one."""
        if self.now is not None and (self.before is None or self.before.key != self.now.key):
            return "RolloutBegan", "Instances with an old template are replaced one after the other"
        if self.before is not None and self.now is None:
            return "RolloutFinished", "Every instance has the current template"
        if self.now is not None and self.before is not None and self.now.regressed and not self.before.regressed:
            return RolloutTrouble.REGRESSED.value, f"The rollout stops: {self.now.measured}"
        return None


def rollout_round(
    before: Rollout | None,
    spec: PoolSpec | None,
    desired: tuple[DesiredRole, ...],
    observed: tuple[ObservedInstance, ...],
    observations: PoolObservations | None,
    now: float,
) -> RolloutRound:
    """Judge the pool's rollout by the present observations and by `before`, its known progress."""
    if spec is None:
        return RolloutRound(before=before, now=before, trouble=None, halted=False)
    current = watch(before, _key(spec, desired), spec.rollout, desired, observed, observations, now)
    trouble = current.trouble(spec.rollout, now) if current is not None else None
    return RolloutRound(before=before, now=current, trouble=trouble, halted=halts(current, spec.rollout))


def read_rollout(document: object) -> Rollout | None:
    """The rollout in a status; None if there is none or it cannot be read."""
    if not isinstance(document, Mapping) or not document.get("key"):
        return None
    began_at = parse_time(document.get("beganAt")) or 0.0
    return Rollout(
        key=str(document["key"]),
        began_at=began_at,
        attainment_before=document.get("attainmentBefore"),
        updated={Role(role): int(count) for role, count in (document.get("updatedByRole") or {}).items() if role in set(Role)},
        updated_at=parse_time(document.get("updatedAt")) or began_at,
        worse_since=parse_time(document.get("worseSince")),
        measured=str(document.get("measured") or ""),
        regressed=bool(document.get("regressed")),
    )


def rollout_document(rollout: Rollout) -> dict[str, Any]:
    """The rollout in the form of the status; unknown fields are left out."""
    document = {
        "key": rollout.key,
        "beganAt": format_time(rollout.began_at),
        "attainmentBefore": rollout.attainment_before,
        "updatedByRole": {role.value: count for role, count in sorted(rollout.updated.items())} or None,
        "updatedAt": format_time(rollout.updated_at),
        "worseSince": format_time(rollout.worse_since) if rollout.worse_since is not None else None,
        "measured": rollout.measured or None,
        "regressed": rollout.regressed or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def rollout_note(rollout: Rollout) -> str:
    """The rollout's note for its revision, as JSON: facts that could not be observed again if the pool's status were
    lost, namely why it was halted and what it is compared with.
    """
    kept = replace(rollout, updated={}, updated_at=rollout.began_at, worse_since=None)
    document = rollout_document(kept if rollout.regressed else replace(kept, measured=""))
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def read_rollout_note(note: str) -> Rollout | None:
    """The rollout in a revision's note; None if it has none, or an unreadable one."""
    try:
        return read_rollout(json.loads(note))
    except ValueError:
        return None


def _key(spec: PoolSpec, desired: tuple[DesiredRole, ...]) -> str:
    told = [written(spec)["rollout"], [[role.role.value, role.spec_hash] for role in desired]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
