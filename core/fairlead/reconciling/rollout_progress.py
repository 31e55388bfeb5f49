"""Watches a rollout and decides whether it progresses, is paused, or makes the pool worse than the former version did.
Facts about the past (the rollout's begin, the attainment at that time, the duration of a problem) are stored as a
record in the pool's status, so a restarted operator reaches the same verdict.

A record belongs to one revision and one `spec.rollout`; a change of either starts a new record, which also resumes a
stopped rollout.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil

from fairlead.canaries.verdicts import StepVerdict
from fairlead.instances import InstanceState, Role
from fairlead.percentages import percentage
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth
from fairlead.rollout_specs import CanaryStepSpec, RolloutSpec

_SERVED = frozenset({InstanceState.SERVING, InstanceState.CORDONED})


class RolloutTrouble(StrEnum):
    """The reason why a rollout has stopped; also the reason of Progressing=False."""

    PAUSED = "RolloutPaused"
    REGRESSED = "RolloutRegressed"
    REJECTED = "CanaryRejected"
    """The canary's judge found that the new revision is worse; its instances get the former template again."""
    LATE = "ProgressDeadlineExceeded"
    """The rollout continues, but no further instance was updated for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A rollout that is not finished. Times are Unix seconds; attainments are shares (0-1)."""

    key: str
    """A key that identifies the revision and the `spec.rollout` by which the rollout is judged."""
    began_at: float
    attainment_before: float | None
    """The SLO attainment (0-1) when the rollout began; None = nothing was measured then."""
    updated: Mapping[Role, int] = field(default_factory=dict)
    """By role, the largest number of updated instances that have served at the same time."""
    updated_at: float
    """Time when one of the numbers in `updated` last grew."""
    worse_since: float | None = None
    measured: str = ""
    """The change for the worse that was measured since the rollout began, in words; empty if there is none."""
    regressed: bool = False
    step: int = 0
    """The step of the rollout's canary, counted from 0; beyond the last step all instances are replaced."""
    step_since: float | None = None
    """Time from which all instances of the step have served (Unix seconds); None = not all of them serve yet."""
    rejected: bool = False
    """Whether the rollout regressed by the verdict of the canary's judge."""

    @property
    def step_name(self) -> str:
        """The name of the present canary step in records and verdicts."""
        return f"{self.key}/{self.step}"

    def trouble(self, spec: RolloutSpec, now: float) -> tuple[RolloutTrouble, str] | None:
        """Return the reason why the rollout has stopped, as a code and in words; None while the rollout continues."""
        if self.regressed and spec.canary is not None:
            reason = RolloutTrouble.REJECTED if self.rejected else RolloutTrouble.REGRESSED
            return reason, f"{self.measured}; its instances get the former template again; change the pool to try once more"
        if self.regressed:
            return RolloutTrouble.REGRESSED, f"{self.measured}; roll back, or change the pool to go on"
        if spec.paused:
            return RolloutTrouble.PAUSED, "rollout.paused is true"
        if now - self.updated_at >= spec.progress_deadline_seconds:
            return (
                RolloutTrouble.LATE,
                f"{sum(self.updated.values())} instances updated, no further instance for {now - self.updated_at:.0f} s",
            )
        return None


def halts(rollout: Rollout | None, spec: RolloutSpec) -> bool:
    """Return whether the rollout is halted, so that no outdated instance may be replaced now."""
    return spec.paused or (rollout is not None and rollout.regressed)


def watch(
    before: Rollout | None,
    key: str,
    spec: RolloutSpec,
    desired: tuple[DesiredRole, ...],
    observed: Iterable[ObservedInstance],
    observations: PoolObservations | None,
    now: float,
) -> Rollout | None:
    """Return the current state of the rollout; None once every desired instance exists, is up to date, and has served.

    A stopped rollout is remembered even if all its instances are gone. `before` is the state that this function last
    returned for the pool; `key` changes with the revision and with `spec.rollout`.
    """
    hashes, everything = {role.role: role.spec_hash for role in desired}, tuple(observed)
    live = [item for item in everything if item.role in hashes and item.draining_since is None and not item.terminating]
    fresh = [item for item in live if item.spec_hash == hashes[item.role]]
    if len(fresh) == len(live):
        outlives = before is not None and before.key == key and halts(before, spec) and not live
        if before is None or not (outlives or _goes_on(desired, everything, live)):
            return None
    attainment = observations.slo_attainment if observations is not None else None
    updated = Counter(item.role for item in fresh if item.state is InstanceState.SERVING)
    if before is None or before.key != key:
        return Rollout(key=key, began_at=now, attainment_before=attainment, updated=dict(updated), updated_at=now)
    if before.regressed:
        return before
    if spec.paused:
        return replace(before, updated_at=now, worse_since=None, measured="")
    most = {role: max(before.updated.get(role, 0), updated[role]) for role in (*before.updated, *updated)}
    seen = replace(
        before,
        attainment_before=attainment if before.attainment_before is None and not updated else before.attainment_before,
        updated=most,
        updated_at=now if most != before.updated or before.updated_at > now else before.updated_at,
    )
    seen = _stepped(seen, spec, desired, updated, observations, now)
    if seen.rejected:
        return seen
    measured = _worse(seen, spec, fresh, attainment)
    if measured is None and observations is not None and observations.figures_behind_seconds:
        return seen  # what was worse is not better for want of figures
    if measured is None:
        return replace(seen, worse_since=None, measured="")
    since = now if before.worse_since is None or before.worse_since > now else before.worse_since
    return replace(seen, worse_since=since, measured=measured, regressed=now - since >= spec.regression.window_seconds)


def _goes_on(desired: tuple[DesiredRole, ...], observed: tuple[ObservedInstance, ...], live: list[ObservedInstance]) -> bool:
    """Return whether a rollout without outdated instances is still in progress: an outdated instance still drains, or
    successors do not serve yet.

    Without room for a surge, the last outdated instance goes before its successor is created.
    """
    for role in desired:
        here = [item for item in live if item.role is role.role]
        drains = any(item.role is role.role and _leaves(item) and item.spec_hash != role.spec_hash for item in observed)
        is_short = len(here) < role.replicas or any(item.state not in _SERVED for item in here)
        if role.replicas > 0 and not role.adopts and (drains or is_short):
            return True
    return False


def _leaves(instance: ObservedInstance) -> bool:
    """Return whether the instance drains for the rollout, and not because fewer instances are desired."""
    return instance.draining_since is not None and not instance.terminating and not instance.drained_as_surplus


def _worse(rollout: Rollout, spec: RolloutSpec, fresh: list[ObservedInstance], attainment: float | None) -> str | None:
    """Return the change for the worse, in words: updated instances fail, or the SLO attainment is lower. None if there
    is no such change.
    """
    failing = sorted(item.id for item in fresh if _fails(item))
    if failing:
        return f"{len(failing)} of {len(fresh)} updated instances fail ({failing[0]})"
    before = rollout.attainment_before
    if attainment is None or before is None or (before - attainment) * 100 <= spec.regression.attainment_drop:
        return None
    return f"SLO attainment {percentage(attainment)}, {percentage(before)} when the rollout began"


def _fails(instance: ObservedInstance) -> bool:
    """Return whether an updated instance was lost through its own fault, or replaces an instance that was lost in this
    way. The loss of a node does not count.
    """
    if instance.state is InstanceState.LOST:
        return instance.health is not PodHealth.UNREACHABLE
    return instance.failures > 0 and instance.state is not InstanceState.SERVING


def step_in_force(rollout: Rollout | None, spec: RolloutSpec) -> CanaryStepSpec | None:
    """Return the present step of the canary; None without a canary, or once all its steps are done."""
    if rollout is None or spec.canary is None:
        return None
    return next(iter(spec.canary.in_order[rollout.step :]), None)


def updated_in(step: CanaryStepSpec, replicas: int) -> int:
    """Return the number of a role's `replicas` instances that have the new template during the step."""
    return min(replicas, ceil(step.share * replicas / 100))


def _stepped(
    seen: Rollout,
    spec: RolloutSpec,
    desired: tuple[DesiredRole, ...],
    updated: Mapping[Role, int],
    observations: PoolObservations | None,
    now: float,
) -> Rollout:
    """Return the rollout, moved on to its next step or marked as rejected if one of these is due. `updated` is the
    number of updated instances of each role that serve.
    """
    step = step_in_force(seen, spec)
    if step is None or spec.canary is None:
        return seen
    told = observations.canary if observations is not None else None
    verdict = told.verdict if told is not None and told.step == seen.step_name else StepVerdict.WAIT
    if told is not None and spec.canary.judge and verdict == StepVerdict.BACK:
        return replace(seen, regressed=True, rejected=True, measured=f"In the canary {told.reason}")
    if any(updated.get(role.role, 0) < updated_in(step, role.replicas) for role in desired):
        return seen
    since = now if seen.step_since is None or seen.step_since > now else seen.step_since
    waiting = replace(seen, step_since=since, updated_at=now)
    if now - since < step.hold_seconds or (spec.canary.judge and verdict != StepVerdict.GO):
        return waiting
    return replace(waiting, step=seen.step + 1, step_since=None)
