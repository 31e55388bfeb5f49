"""What routers should expect of a pool while none of its instances accepts requests."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import ObservedInstance
from fairlead.reconciling.round_plan import UNBORN
from fairlead.scaling.bounds import DeclaredRole, bounds_in_force
from fairlead.scaling.specs import ScalingMode
from fairlead.schedules.in_force import in_force
from fairlead.schedules.windows import changes_after
from fairlead.tables import Outlook

_LOOKS_AHEAD = 64
"""Changes of windows that are looked at to find the next one that starts instances."""


def outlook(
    spec: PoolSpec,
    declared: Mapping[Role, int],
    wanted: Mapping[str, int],
    instances: Sequence[ObservedInstance],
    stuck: frozenset[str],
    now: float,
) -> tuple[Outlook, float | None]:
    """The outlook of a pool at `now` (Unix seconds), and when it opens if it is closed and that is known.

    `declared` has the declared number of each role, `wanted` that of the last round, empty before the first. `stuck`
    names the instances that cannot start as they are. Prefill instances do not count: alone they take no request.
    """
    instant = datetime.fromtimestamp(now, UTC)
    if not any(wanted.values()) and not _may_serve(spec, declared, instant):
        return Outlook.CLOSED, _opens_at(spec, declared, instant)
    staying = [instance for instance in instances if instance.draining_since is None and not instance.terminating]
    taking = [instance for instance in staying if instance.role is not Role.PREFILL]
    starting = all(instance.state in UNBORN for instance in taking)
    if not starting or (taking and all(instance.id in stuck for instance in taking)):
        return Outlook.UNKNOWN, None
    return Outlook.COMING, None


def _may_serve(spec: PoolSpec, declared: Mapping[Role, int], instant: datetime) -> bool:
    """Whether the pool has instances at that time, or in mode SLO gets some once they are needed."""
    windows = in_force(spec.scaling.schedules, instant).bounds
    for role in spec.roles:
        number = role.most if spec.scaling.mode is ScalingMode.SLO else declared[role.name]
        limits = DeclaredRole(role=role.name, replicas=number, min_replicas=role.least, max_replicas=role.most)
        if bounds_in_force(limits, windows).clamp(number) == 0:
            return False
    return True


def _opens_at(spec: PoolSpec, declared: Mapping[Role, int], after: datetime) -> float | None:
    changes = islice(changes_after(spec.scaling.schedules, after), _LOOKS_AHEAD)
    return next((change.timestamp() for change in changes if _may_serve(spec, declared, change)), None)
