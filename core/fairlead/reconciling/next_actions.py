"""`next_actions`: the next actions for one role of a pool.

When the pool scales up while instances drain, new instances are created and the drains go on: a draining instance
has lost its sessions and its place in the rings, so reviving it would save nothing of value, and a state that is
never left has one race less.
"""

from dataclasses import dataclass, field

from fairlead.draining import acknowledged, by_cost, is_drained
from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import Action, CreateInstance, DeleteInstance, DeletionReason, Drain, DrainReason, RecordState
from fairlead.reconciling.backoff import failures_of_replacement, replaced_at
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth, ReplicaLimits
from fairlead.reconciling.states import next_state

_UNBORN = frozenset({InstanceState.PENDING, InstanceState.STARTING})
_DEFAULT_LIMITS = ReplicaLimits()
_CLOCK_TOLERANCE_SECONDS = 1.0


def next_actions(
    desired: DesiredRole | None,
    observed: tuple[ObservedInstance, ...],
    observations: PoolObservations | None,
    now: float,
    limits: ReplicaLimits = _DEFAULT_LIMITS,
    last_ordinal: int = 0,
) -> tuple[Action, ...]:
    """The actions to take now, at most one per instance.

    Total: every combination of arguments has a plan, and a settled pool has an empty one. `desired` None = no valid
    spec was ever seen, so only states are recorded. `observations` is the API's answer to the states of exactly
    these instances, None when it did not answer: then nothing starts that needs the routers' consent. `now` is in
    Unix seconds and may jump. `last_ordinal` is the highest ordinal known to have been given, needed when that
    instance is already gone.
    """
    actions_ = _NextActions(observed=observed, observations=observations, now=now, limits=limits, last_ordinal=last_ordinal)
    actions_.record_states()
    if desired is not None:
        actions_.delete_finished(desired)
        actions_.delete_outdated_unborn(desired)
        actions_.scale(desired)
    # Creations first: a pod carries how often in a row its predecessors failed, and a crash must not lose that.
    return tuple(actions_.creations) + tuple(actions_.actions.values())


@dataclass(slots=True, kw_only=True)
class _NextActions:
    observed: tuple[ObservedInstance, ...]
    observations: PoolObservations | None
    now: float
    limits: ReplicaLimits
    last_ordinal: int
    actions: dict[str, Action] = field(default_factory=dict)
    creations: list[CreateInstance] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """Of each instance that this plan gives up: the failures in a row that its replacement comes after."""

    def record_states(self) -> None:
        for instance in self.observed:
            state, reason = next_state(instance, in_every_table=acknowledged(self.observations, instance.id))
            if state is not instance.state:
                self._record(instance, state, reason)
            elif self._timer_of(instance) > self.now + _CLOCK_TOLERANCE_SECONDS:
                # The clock went back: start the timer again, or it would run longer by the size of the jump.
                self._record(instance, state, "ClockWentBack")

    def delete_finished(self, desired: DesiredRole) -> None:
        for instance in self._free():
            if instance.state is InstanceState.DRAINING and is_drained(self.observations, instance.id):
                self._delete(instance, DeletionReason.DRAINED)
            elif instance.state is InstanceState.DRAINING and self._elapsed(instance) >= desired.drain_timeout_seconds:
                self._delete(instance, DeletionReason.DRAIN_TIMED_OUT)
            elif instance.state is InstanceState.LOST:
                self._delete_lost(instance)

    def _delete_lost(self, instance: ObservedInstance) -> None:
        if instance.health is PodHealth.FAILED:
            waits = instance.created_at <= self.now < replaced_at(instance, self.limits)
            reason = DeletionReason.POD_FAILED
        else:
            waits = self.now < replaced_at(instance, self.limits)
            reason = DeletionReason.LOST_TOO_LONG
        if instance.draining_since is not None:
            if not waits or instance.health is PodHealth.FAILED:
                self._delete(instance, reason)
        elif not waits and len(self.failures) < self._creatable():
            self._delete(instance, reason)
            self.failures.append(failures_of_replacement(instance, self.limits))

    def delete_outdated_unborn(self, desired: DesiredRole) -> None:
        """Replace a pod with an old template at once if it never served: a corrected image must not wait for the wrong
        one.
        """
        for instance in self._free():
            if self._is_live(instance) and instance.state in _UNBORN and instance.spec_hash != desired.spec_hash:
                self._delete(instance, DeletionReason.OUTDATED)

    def scale(self, desired: DesiredRole) -> None:
        live = [instance for instance in self.observed if self._is_live(instance)]
        rolling = [instance for instance in live if instance.spec_hash != desired.spec_hash and instance.state not in _UNBORN]
        # A surge does not start while an instance drains, so that a rollout adds one pod at most; a
        # surge already begun goes on.
        surges = bool(rolling) and _surges(desired) and (len(live) > desired.replicas or not self._somebody_drains())
        target = desired.replicas + (1 if surges else 0)
        if len(live) < target:
            self._create(desired, target - len(live), surging=len(live) >= desired.replicas)
        elif len(live) > target:
            self._give_up(desired, live, len(live) - target, target)
        elif rolling:
            self._replace_one(desired, live, rolling)

    def _create(self, desired: DesiredRole, missing: int, *, surging: bool) -> None:
        reason = "Outdated" if surging else "Missing"
        last = max((self.last_ordinal, *(instance.ordinal for instance in self.observed)))
        failures = sorted(self.failures, reverse=True) + [0] * missing
        for step in range(min(missing, self._creatable())):
            action = CreateInstance(
                role=desired.role, ordinal=last + 1 + step, spec_hash=desired.spec_hash, reason=reason, failures=failures[step]
            )
            self.creations.append(action)

    def _creatable(self) -> int:
        """How many pods the pace allows to create now."""
        return self.limits.creations_per_second - sum(1 for instance in self.observed if 0 <= self.now - instance.created_at < 1.0)

    def _give_up(self, desired: DesiredRole, live: list[ObservedInstance], surplus: int, target: int) -> None:
        """Remove instances that do not serve first, then the cheapest that serve, outdated before current.

        At least `target` instances go on serving.
        """
        free = [instance for instance in live if instance.id not in self.actions]
        lost = [instance for instance in free if instance.state is InstanceState.LOST]
        unborn = [instance for instance in free if instance.state in _UNBORN]
        for instance in sorted(lost, key=lambda item: item.id) + sorted(unborn, key=lambda item: (item.state, item.id)):
            if surplus == 0:
                return
            surplus -= 1
            if instance.state in _UNBORN:
                self._delete(instance, DeletionReason.NEVER_SERVED)
            elif instance.health is PodHealth.FAILED:
                self._delete(instance, DeletionReason.POD_FAILED)
            else:
                self._drain(instance.id, DrainReason.SCALED_DOWN, 0.0)
        serving = [instance for instance in free if instance.state not in _UNBORN and instance.state is not InstanceState.LOST]
        for cost, victim in self._victims(desired, serving)[: max(0, min(surplus, len(serving) - target))]:
            self._drain(victim, DrainReason.SCALED_DOWN, cost)

    def _replace_one(self, desired: DesiredRole, live: list[ObservedInstance], rolling: list[ObservedInstance]) -> None:
        """Replace outdated instances one at a time: the next one only when all others serve and none drains."""
        if self._somebody_drains():
            return
        fresh = [instance for instance in live if instance.spec_hash == desired.spec_hash]
        if not all(instance.state is InstanceState.SERVING and instance.id not in self.actions for instance in fresh):
            return
        accepting = [instance for instance in live if instance.state in ACCEPTING and instance.id not in self.actions]
        victims = self._victims(desired, [instance for instance in rolling if instance.id not in self.actions and instance in accepting])
        if victims and len(accepting) > desired.min_replicas:
            cost, victim = victims[0]
            self._drain(victim, DrainReason.OUTDATED, cost)

    def _victims(self, desired: DesiredRole, candidates: list[ObservedInstance]) -> list[tuple[float, str]]:
        if self.observations is None:
            return []
        outdated = {instance.id for instance in candidates if instance.spec_hash != desired.spec_hash}
        priced = by_cost((instance.id for instance in candidates), self.observations, desired.prefill_tokens_per_second)
        return sorted(priced, key=lambda item: item[1] not in outdated)

    def _free(self) -> list[ObservedInstance]:
        return [instance for instance in self.observed if instance.id not in self.actions and not instance.terminating]

    def _somebody_drains(self) -> bool:
        return any(instance.draining_since is not None and not instance.terminating for instance in self.observed)

    def _is_live(self, instance: ObservedInstance) -> bool:
        """Whether the instance is useful or will be again: it is not leaving and this plan does not delete it."""
        return (
            not instance.terminating and instance.draining_since is None and not isinstance(self.actions.get(instance.id), DeleteInstance)
        )

    def _timer_of(self, instance: ObservedInstance) -> float:
        return instance.draining_since if instance.draining_since is not None else instance.state_since

    def _elapsed(self, instance: ObservedInstance) -> float:
        return self.now - self._timer_of(instance)

    def _record(self, instance: ObservedInstance, state: InstanceState, reason: str) -> None:
        self.actions[instance.id] = RecordState(instance=instance.id, before=instance.state, state=state, reason=reason)

    def _delete(self, instance: ObservedInstance, reason: DeletionReason) -> None:
        self.actions[instance.id] = DeleteInstance(instance=instance.id, reason=reason)

    def _drain(self, instance: str, reason: DrainReason, cost: float) -> None:
        self.actions[instance] = Drain(instance=instance, reason=reason, cost=cost)


def _surges(desired: DesiredRole) -> bool:
    """Whether rolling replacement may add one instance above the target.

    At the maximum it removes an instance first instead, unless the minimum forbids that; then it adds one.
    """
    if desired.replicas == 0:
        return False
    return desired.replicas < desired.max_replicas or desired.replicas <= desired.min_replicas
