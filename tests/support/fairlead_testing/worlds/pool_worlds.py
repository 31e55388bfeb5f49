"""Builders of the reconciler's input: desired roles, instances, and the routers' observations of them."""

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceObservation, PoolObservations
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth, RoleChange, RolloutBounds

_USUAL_ROLLOUT = RolloutBounds()


def wanted(
    replicas: int,
    *,
    role: Role = Role.BOTH,
    minimum: int = 0,
    maximum: int = 64,
    spec_hash: str = "one",
    drain_timeout: float = 120.0,
    rollout: RolloutBounds = _USUAL_ROLLOUT,
) -> DesiredRole:
    """Return a desired role with the usual bounds."""
    return DesiredRole(
        role=role,
        replicas=replicas,
        min_replicas=minimum,
        max_replicas=maximum,
        spec_hash=spec_hash,
        drain_timeout_seconds=drain_timeout,
        rollout=rollout,
    )


def wanted_pool(replicas: int, *, minimum: int = 0, maximum: int = 64, rollout: RolloutBounds = _USUAL_ROLLOUT) -> DesiredPool:
    """Return a desired pool of the role both."""
    return DesiredPool(roles=(wanted(replicas, minimum=minimum, maximum=maximum, rollout=rollout),))


def wanted_pair(
    prefill: int, decode: int, *, role_change: RoleChange = RoleChange.ROLE_FLIP, hashes: tuple[str, str] = ("one", "one")
) -> DesiredPool:
    """Return a desired pool of prefill and decode instances, at least one of each."""
    return DesiredPool(
        roles=(
            wanted(prefill, role=Role.PREFILL, minimum=1, spec_hash=hashes[0]),
            wanted(decode, role=Role.DECODE, minimum=1, spec_hash=hashes[1]),
        ),
        role_change=role_change,
    )


def instance(
    name: str,
    state: InstanceState = InstanceState.SERVING,
    *,
    role: Role = Role.BOTH,
    health: PodHealth | None = None,
    since: float = 0.0,
    created_at: float = 0.0,
    spec_hash: str = "one",
    terminating: bool = False,
    flip_to: Role | None = None,
    cordoned: bool = False,
    drain_requested: bool = False,
    drained_on_request: bool = False,
    drained_as_surplus: bool = False,
    adopted: bool = False,
) -> ObservedInstance:
    """Return an observed instance. By default its pod's health fits its state."""
    usual = {InstanceState.PENDING: PodHealth.PENDING, InstanceState.STARTING: PodHealth.RUNNING, InstanceState.LOST: PodHealth.UNREACHABLE}
    return ObservedInstance(
        id=name,
        role=role,
        health=health or usual.get(state, PodHealth.READY),
        state=state,
        state_since=since,
        spec_hash=spec_hash,
        created_at=created_at,
        terminating=terminating,
        draining_since=since if state is InstanceState.DRAINING else None,
        flip_to=flip_to,
        cordoned=cordoned,
        drain_requested=drain_requested,
        drained_on_request=drained_on_request,
        drained_as_surplus=drained_as_surplus,
        adopted=adopted,
    )


def seen(name: str, *, in_flight: int = 0, sessions: int = 0, cache: int = 0, acknowledged: bool = True) -> InstanceObservation:
    """Return the routers' observation of an instance."""
    return InstanceObservation(id=name, in_flight=in_flight, bound_sessions=sessions, cache_tokens=cache, acknowledged=acknowledged)


def answer(*instances: InstanceObservation, live_routers: int = 2) -> PoolObservations:
    """Return the API's observations of a pool with these instances."""
    return PoolObservations(
        table_version=1,
        table_acknowledged=all(item.acknowledged for item in instances),
        live_routers=live_routers,
        ttft_attainment=None,
        requests_per_second=0.0,
        instances=instances,
    )
