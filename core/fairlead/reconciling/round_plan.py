"""The plan of one round while it is computed: the observations, and the decisions so far."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fairlead.capabilities import UNKNOWN, best, value_of
from fairlead.draining import by_cost
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import (
    Action,
    CreateInstance,
    CreationReason,
    DeleteInstance,
    DeletionReason,
    Drain,
    DrainReason,
    EndDrain,
    FlipRole,
    RecordState,
    ReleaseInstance,
    ReleaseReason,
    ScaleWorkload,
    SleepInstance,
    WakeInstance,
)
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, ReplicaLimits

NONE_GONE: Mapping[str, Role] = MappingProxyType({})
UNBORN = frozenset({InstanceState.PENDING, InstanceState.STARTING})
"""States of an instance that never served and has no requests or caches to lose."""


@dataclass(slots=True, kw_only=True)
class RoundPlan:
    """A plan with at most one action per instance, and the creations. Every method adds to the plan or queries it."""

    observed: tuple[ObservedInstance, ...]
    observations: PoolObservations | None
    now: float
    limits: ReplicaLimits
    last_ordinal: int
    actions: dict[str, Action] = field(default_factory=dict)
    creations: list[CreateInstance] = field(default_factory=list)
    scalings: list[ScaleWorkload] = field(default_factory=list)
    failures: dict[Role, list[int]] = field(default_factory=dict)
    """By role, for each failed instance that this plan removes: the number of failures in a row before its
    replacement.
    """
    claims: list[str] | None = None
    """The claims of shared devices that this plan may still take; None = instances share no devices."""
    in_use: frozenset[str] = frozenset()
    """The claims of the devices that pods hold."""
    gone: Mapping[str, Role]
    """Instances that have gone and that nothing replaces yet, with their roles."""
    most_creations: int | None = None
    """Maximum number of instances to create while instances of roles that the pool does not have are replaced; None =
    no such instances exist.
    """

    def free(self) -> list[ObservedInstance]:
        """Return the instances that have no action in this round and whose pods are not being deleted."""
        return [instance for instance in self.observed if instance.id not in self.actions and not instance.terminating]

    def live(self, role: Role) -> list[ObservedInstance]:
        """Return a role's instances that serve now or will serve: they are not being removed from the role, and this
        plan does not delete them.
        """
        return [
            instance
            for instance in self.observed
            if instance.role is role
            and not instance.terminating
            and instance.draining_since is None
            and (instance.state is not InstanceState.ASLEEP or isinstance(self.actions.get(instance.id), WakeInstance))
            and not isinstance(self.actions.get(instance.id), DeleteInstance | Drain | ReleaseInstance)
        ]

    def draining(self) -> list[ObservedInstance]:
        """Return instances that are being emptied and whose pods are not being deleted yet."""
        return [instance for instance in self.observed if instance.draining_since is not None and not instance.terminating]

    def leaving(self, role: Role) -> list[ObservedInstance]:
        """Return instances of a role whose pods are being deleted, or are deleted by this plan."""
        return [
            instance
            for instance in self.observed
            if instance.role is role and (instance.terminating or isinstance(self.actions.get(instance.id), DeleteInstance))
        ]

    def replaced(self, role: Role, most: int) -> list[str]:
        """Return the instances of a role that the next `most` new instances replace. Candidates are instances whose
        pods are being deleted, and instances that disappeared without a successor. If there are more than `most`
        candidates, the last `most` candidates are returned, because earlier candidates already have successors.
        """
        names = [instance.id for instance in self.leaving(role)] + sorted(name for name, of in self.gone.items() if of is role)
        return names[max(0, len(names) - most) :] if most > 0 else []

    def elapsed(self, instance: ObservedInstance) -> float:
        """Return the seconds since the instance's drain began or, if it does not drain, since its state began."""
        return self.elapsed_since(timer_of(instance))

    def elapsed_since(self, at: float) -> float:
        """Return the seconds since this time (Unix seconds)."""
        return self.now - at

    def record(self, instance: ObservedInstance, state: InstanceState, reason: str) -> None:
        self.actions[instance.id] = RecordState(
            instance=instance.id, before=instance.state, state=state, reason=reason, restarts=instance.restarts
        )

    def delete(self, instance: ObservedInstance, reason: DeletionReason) -> None:
        """Delete a pod of the pool's own; an adopted pod is released instead, whatever the reason."""
        if instance.adopted:
            self.release(instance, ReleaseReason.NOT_SELECTED)
        else:
            self.actions[instance.id] = DeleteInstance(instance=instance.id, reason=reason, group=instance.group)

    def release(self, instance: ObservedInstance, reason: ReleaseReason) -> None:
        self.actions[instance.id] = ReleaseInstance(instance=instance.id, reason=reason)

    def drain(self, instance: str, reason: DrainReason, cost: float, flip_to: Role | None = None, *, goes_first: bool = False) -> None:
        self.actions[instance] = Drain(instance=instance, reason=reason, cost=cost, flip_to=flip_to, goes_first=goes_first)

    def scale_workload(self, role: Role, before: int, replicas: int) -> None:
        self.scalings.append(ScaleWorkload(role=role, before=before, replicas=replicas))

    def put_to_sleep(self, instance: ObservedInstance) -> None:
        self.actions[instance.id] = SleepInstance(instance=instance.id)

    def wake(self, instance: ObservedInstance) -> None:
        """Wake a sleeping instance. The instance then takes its device."""
        if self.claims is not None and instance.claim in self.claims:
            self.claims.remove(instance.claim)
        self.actions[instance.id] = WakeInstance(instance=instance.id, begins=instance.state is InstanceState.ASLEEP)

    def end_drain(self, instance: ObservedInstance) -> None:
        self.actions[instance.id] = EndDrain(instance=instance.id)

    def flip(self, instance: ObservedInstance, role: Role) -> None:
        self.actions[instance.id] = FlipRole(instance=instance.id, before=instance.role, role=role)

    def create(self, role: Role, hashes: Sequence[str], reason: CreationReason, replaced: Sequence[str] = ()) -> None:
        """Create an instance of a role from each of these templates. Create fewer instances if the limit of creations
        per second requires it. The new instances replace the instances `replaced`, in this order. If instances share
        devices, each new instance takes a free device at which no instance of the pool sleeps.
        """
        last = max((self.last_ordinal, *(instance.ordinal for instance in self.observed)))
        failures = self.failures.get(role, [])
        for number, spec_hash in enumerate(hashes[: max(0, self._creatable())]):
            if self.claims is not None and not (places := self._untouched_claims()):
                return
            ordinal = last + 1 + len(self.creations)
            after = failures.pop() if failures else 0
            replaces = replaced[number] if number < len(replaced) else ""
            creation = CreateInstance(role=role, ordinal=ordinal, spec_hash=spec_hash, reason=reason, failures=after, replaces=replaces)
            if self.claims is not None:
                creation = replace(creation, claim=places[0])
                self.claims.remove(places[0])
            self.creations.append(creation)

    def _untouched_claims(self) -> list[str]:
        """Return the claims that no pod uses, neither an instance that is awake nor a sleeping instance that could be
        woken instead.
        """
        out = [one for one in self.observed if one.state is InstanceState.ASLEEP and (one.cordoned or one.terminating)]
        used = {instance.claim for instance in self.observed if instance not in out} | self.in_use
        return [claim for claim in self.claims or () if claim not in used]

    def failed(self, role: Role, failures: int) -> None:
        """Record the number of consecutive failures before the replacement of a failed instance."""
        self.failures[role] = sorted((*self.failures.get(role, []), failures))

    def replaceable(self) -> int:
        """Return the number of further failed instances that may be replaced now within the limit of creations per
        second.
        """
        return self._creatable() - sum(len(failures) for failures in self.failures.values())

    def _creatable(self) -> int:
        """Return the number of further pods that may be created now within the limit of creations per second and, while
        instances of other roles are replaced, within the surge.
        """
        recent = sum(1 for instance in self.observed if 0 <= self.now - instance.created_at < 1.0)
        most = self.limits.creations_per_second - recent
        return (most if self.most_creations is None else min(most, self.most_creations)) - len(self.creations)

    def _prefill_speed(self, desired: DesiredRole) -> float:
        """Return the best known prefill speed. It need not be exact, because it only affects the order in which
        instances are removed.
        """
        capability = self.observations.capability if self.observations is not None else None
        seen = UNKNOWN if capability is None else capability.prefill_tokens_per_second
        return value_of(best(seen, desired.prefill_speed))

    def victims(self, desired: DesiredRole, candidates: Iterable[ObservedInstance]) -> list[tuple[float, str]]:
        """Return the candidates with their costs of removal, in the order of draining: first instances whose drain a
        person requested, then cordoned instances, then instances whose template is not kept, then all other instances.
        Within each group, the cheapest instance comes first.

        Empty if the routers' reports are missing.
        """
        if self.observations is None:
            return []
        known = {instance.id: instance for instance in candidates}
        priced = by_cost(known, self.observations, self._prefill_speed(desired))

        def comes_later(priced: tuple[float, str]) -> tuple[bool, bool, bool]:
            one = known[priced[1]]
            return not one.drain_requested, not one.cordoned, one.spec_hash == desired.kept_hash

        return sorted(priced, key=comes_later)


def timer_of(instance: ObservedInstance) -> float:
    """Return the time at which the instance's drain or, if it does not drain, its state began (Unix seconds)."""
    if instance.state is InstanceState.DRAINING and instance.draining_since is not None:
        return instance.draining_since
    return instance.state_since
