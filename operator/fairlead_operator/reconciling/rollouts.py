"""The rollout in progress: read from the pool's status, assessed, and written back. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from fairlead.instances import ACCEPTING, Role
from fairlead.pool_states import PoolObservations
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import CanaryLimit, DesiredPool, DesiredRole, Halt, ObservedInstance
from fairlead.reconciling.rollout_progress import Rollout, RolloutTrouble, halts, step_in_force, updated_in, watch
from fairlead.rollout_specs import CanaryStepSpec
from fairlead.schemas.writing import written
from fairlead.tables import CanaryFacts
from fairlead_operator.times import format_time, parse_time
from fairlead_process.json_documents import read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRound:
    """A pool's rollout in one round: the rollout as read from the status, and its present state."""

    before: Rollout | None
    now: Rollout | None
    trouble: tuple[RolloutTrouble, str] | None
    halted: bool
    step: CanaryStepSpec | None = None
    """The present canary step of the rollout; None if the rollout has no canary."""
    steps: int = 0
    """Number of steps of the canary; 0 = there is no canary."""

    @property
    def keeps_former(self) -> bool:
        """Whether instances may be created with the former template: the rollout is halted or in a canary step."""
        return self.halted or self.step is not None

    @property
    def goes_back(self) -> bool:
        """Whether instances with the new template are replaced by instances with the former template."""
        return self.steps > 0 and self.now is not None and self.now.regressed

    @property
    def words(self) -> str:
        """The state of the canary in words; empty without a canary."""
        if self.step is None or self.now is None:
            return ""
        return f"Canary, step {self.now.step + 1} of {self.steps}: up to {self.step.share} % of the sessions go to the new revision"

    def goal(self, desired: DesiredPool | None, former: Mapping[Role, str]) -> DesiredPool | None:
        """Return the planner's input: the desired roles, limited by the halt or the canary step of the rollout.
        `former` has, by role, the hash of the template that all instances had before the rollout, if known.
        """
        if desired is None or not self.keeps_former:
            return desired
        if self.goes_back:
            return replace(desired, roles=tuple(self._going_back(role, former) for role in desired.roles))
        if not self.halted:
            return replace(desired, roles=tuple(self._in_step(role, former) for role in desired.roles))
        roles = (replace(role, rollout=replace(role.rollout, halt=self._halt(role.role, former))) for role in desired.roles)
        return replace(desired, roles=tuple(roles))

    def _going_back(self, role: DesiredRole, former: Mapping[Role, str]) -> DesiredRole:
        if role.role in former:
            return replace(role, spec_hash=former[role.role])
        return replace(role, rollout=replace(role.rollout, halt=self._halt(role.role, former)))

    def _in_step(self, role: DesiredRole, former: Mapping[Role, str]) -> DesiredRole:
        assert self.step is not None
        limit = CanaryLimit(former_hash=former.get(role.role), updated=updated_in(self.step, role.replicas))
        return replace(role, rollout=replace(role.rollout, canary=limit))

    def _halt(self, role: Role, former: Mapping[Role, str]) -> Halt:
        regressed = self.now is not None and self.now.regressed
        updated = self.now.updated.get(role, 0) if self.now is not None and not regressed else 0
        return Halt(former_hash=former.get(role), updated=updated, regressed=regressed)

    def news(self) -> tuple[str, str] | None:
        """Return reason and message of the event to record about the rollout; None if no event is needed."""
        if self.now is not None and self.now.rejected and (self.before is None or not self.before.rejected):
            return RolloutTrouble.REJECTED.value, f"The canary is rolled back: {self.now.measured}"
        if self.now is not None and self.step is not None and not _same_step(self.before, self.now):
            return "CanaryStep", self.words
        if self.now is not None and self.steps and self.before is not None and self.before.step < self.now.step:
            return "CanaryPassed", "The canary passed its last step; all instances get the new template"
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
    """Return the pool's rollout with its state after the present observations. `before` is the rollout as it was
    recorded in the last round.
    """
    if spec is None:
        return RolloutRound(before=before, now=before, trouble=None, halted=False)
    current = watch(before, _key(spec, desired), spec.rollout, desired, observed, observations, now)
    trouble = current.trouble(spec.rollout, now) if current is not None else None
    steps = len(spec.rollout.canary.steps) if spec.rollout.canary is not None else 0
    step = step_in_force(current, spec.rollout)
    return RolloutRound(before=before, now=current, trouble=trouble, halted=halts(current, spec.rollout), step=step, steps=steps)


def _same_step(before: Rollout | None, now: Rollout) -> bool:
    return before is not None and before.step_name == now.step_name


def present_canary(
    rollout: Rollout | None, spec: PoolSpec | None, roles: Iterable[DesiredRole], observed: Iterable[ObservedInstance]
) -> CanaryFacts | None:
    """Return the canary's facts for routers; None without a canary.

    The canary gets the share of the sessions that its step sets. If the canary's instances are a smaller share of all
    instances that take requests, it gets that smaller share. Therefore no canary instance gets more work than another
    instance. The share is 0 while the rollout is halted.
    """
    if rollout is None or spec is None or spec.rollout.canary is None:
        return None
    step = step_in_force(rollout, spec.rollout)
    if step is None and not rollout.regressed:
        return None
    taking, hashes = [one for one in observed if one.state in ACCEPTING], {role.spec_hash for role in roles}
    ours = tuple(sorted(one.id for one in taking if one.spec_hash in hashes))
    share = 0.0 if step is None or halts(rollout, spec.rollout) or not taking else min(step.share / 100, len(ours) / len(taking))
    return CanaryFacts(step=rollout.step_name, share=round(share, 4), instances=ours)


class _Written(msgspec.Struct, frozen=True, rename="camel"):
    """A rollout in a status or in a revision's note."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    began_at: str | None = None
    attainment_before: float | None = None
    updated_by_role: dict[str, int] | None = None
    updated_at: str | None = None
    worse_since: str | None = None
    measured: str | None = None
    regressed: bool | None = None
    step: Annotated[int, msgspec.Meta(ge=0)] | None = None
    step_since: str | None = None
    rejected: bool | None = None

    def read(self) -> Rollout:
        began_at = parse_time(self.began_at) or 0.0
        return Rollout(
            key=self.key,
            began_at=began_at,
            attainment_before=self.attainment_before,
            updated={Role(role): count for role, count in (self.updated_by_role or {}).items() if role in set(Role)},
            updated_at=parse_time(self.updated_at) or began_at,
            worse_since=parse_time(self.worse_since),
            measured=self.measured or "",
            regressed=bool(self.regressed),
            step=self.step or 0,
            step_since=parse_time(self.step_since),
            rejected=bool(self.rejected),
        )


_notes = msgspec.json.Decoder(_Written)


def read_rollout(document: object) -> Rollout | None:
    """Return the rollout in a status; None if there is none or it cannot be read."""
    try:
        return msgspec.convert(document, _Written).read()
    except msgspec.ValidationError:
        return None


def rollout_document(rollout: Rollout) -> dict[str, Any]:
    """Return the rollout in the form of the status; unknown fields are left out."""
    document = {
        "key": rollout.key,
        "beganAt": format_time(rollout.began_at),
        "attainmentBefore": rollout.attainment_before,
        "updatedByRole": {role.value: count for role, count in sorted(rollout.updated.items())} or None,
        "updatedAt": format_time(rollout.updated_at),
        "worseSince": format_time(rollout.worse_since) if rollout.worse_since is not None else None,
        "measured": rollout.measured or None,
        "regressed": rollout.regressed or None,
        "step": rollout.step or None,
        "stepSince": format_time(rollout.step_since) if rollout.step_since is not None else None,
        "rejected": rollout.rejected or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def rollout_note(rollout: Rollout) -> str:
    """Return the rollout's note for its revision, as JSON. The note has the facts that could not be observed again if
    the pool's status were lost: why the rollout was halted, and the measurements with which the new template is
    compared.
    """
    kept = replace(rollout, updated={}, updated_at=rollout.began_at, worse_since=None)
    document = rollout_document(kept if rollout.regressed else replace(kept, measured=""))
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def read_rollout_note(note: str) -> Rollout | None:
    """Return the rollout in a revision's note; None if the note has no rollout or cannot be read. Notes may be
    unreadable because anybody may write them.
    """
    try:
        return read_json(note.encode(errors="replace"), _notes).read()
    except msgspec.DecodeError:
        return None


def _key(spec: PoolSpec, desired: tuple[DesiredRole, ...]) -> str:
    told = [written(spec)["rollout"], [[role.role.value, role.spec_hash] for role in desired]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
