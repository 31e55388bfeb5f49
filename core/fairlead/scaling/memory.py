"""The state that scaling keeps from one round to the next, also over a restart of the operator.

The operator keeps a `ScalingMemory` in the pool's `status.scaling`, as JSON. The memory changes only at a comparison
(every `period` of `spec.scaling` and `spec.ratio`) or a step, so that the status need not be written in every round,
and it is empty while both modes are Fixed. A status may be lost, and a restored or re-created pool has none. The memory
is then rebuilt from the present numbers (`rebuilt`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fairlead.instances import MAX_REPLICAS, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """A recommended number of instances, and when it was last recommended (Unix seconds)."""

    replicas: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A past change of a role's number, by `change` instances, and its time (Unix seconds)."""

    change: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """A start of a role from zero instances: its time (Unix seconds), and the prompt tokens of the requests that
    routers held then.
    """

    at: float
    held_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMemory:
    """The memory of one role. `replicas` is the number last decided, after all bounds."""

    role: Role
    declared: int
    replicas: int
    compared_at: float | None = None
    """Time at which the need was last computed from signals; None if it was never computed."""
    highest: tuple[Recommended, ...] = ()
    """Recommendations that no later recommendation exceeds, oldest first. So the first of them within a window is the
    highest recommendation of the window.
    """
    lowest: tuple[Recommended, ...] = ()
    """Recommendations that no later recommendation falls below, oldest first. So the first of them within a window is
    the lowest recommendation of the window.
    """
    steps: tuple[Step, ...] = ()
    told: str = ""
    """The key of the last recommendation that was recorded, so that only changes are recorded."""
    rebuilt_at: float | None = None
    """Time at which the number of instances was set to the number of present instances because no memory existed;
    earlier steps are not known. None if the memory was never lost.
    """
    woken: Woken | None = None
    """The role's last start from zero; None if it has not been started from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMemory:
    """The memory of the ratio controller. Loads are predicted latencies over their SLO."""

    shift: int = 0
    """Instances moved from decode to prefill since the numbers were declared; negative = from prefill to decode."""
    compared_at: float | None = None
    comparisons: int = 0
    """Number of comparisons that are contained in the smoothed figures."""
    prefill_load: float | None = None
    decode_load: float | None = None
    """The smoothed load of decode; None before the first comparison after a start or a move."""
    prefill_work: float | None = None
    decode_work: float | None = None
    """Instances kept busy by arriving decode work, smoothed; None if that is not known."""
    beyond: int = 0
    """Number of consecutive comparisons that found too few prefill instances; negative = too few decode instances."""
    worth: int = 0
    """Number of the latest consecutive comparisons, among the comparisons counted in `beyond`, in which the measured
    work showed that a move is worth it.
    """
    moved_at: float | None = None
    told: str = ""
    """The key of the last recommendation that was recorded, so that only changes are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMemory:
    """The memory of a pool's scaling: the memory of each role and of the ratio controller."""

    roles: tuple[RoleMemory, ...] = ()
    ratio: RatioMemory = field(default_factory=RatioMemory)

    def of(self, role: Role) -> RoleMemory | None:
        """Return the memory of a role; None if there is none."""
        return next((one for one in self.roles if one.role is role), None)


def is_plausible(memory: ScalingMemory) -> bool:
    """Return whether this memory could result from decisions; otherwise it is treated as missing."""
    return all(0 <= role.replicas <= MAX_REPLICAS and 0 <= role.declared <= MAX_REPLICAS for role in memory.roles)


def rebuilt(memory: ScalingMemory, declared: Mapping[Role, int], standing: Mapping[Role, int], now: float) -> ScalingMemory:
    """Return the memory, with missing parts filled in from the present numbers; `standing` is empty if nothing was
    lost.

    The past is unknown, so a whole period passes before a role's next step. If instances had moved between the roles, a
    whole cooldown passes before the next move.
    """
    lacking = [role for role in declared if role in standing and memory.of(role) is None]
    found = (RoleMemory(role=role, declared=declared[role], replicas=standing[role], rebuilt_at=now) for role in lacking)
    ratio = memory.ratio
    if lacking and ratio == RatioMemory() and {Role.PREFILL, Role.DECODE} <= declared.keys() & standing.keys():
        shift = _shift_of(declared, standing)
        ratio = replace(ratio, shift=shift, moved_at=now) if shift else ratio
    return replace(memory, roles=(*memory.roles, *found), ratio=ratio)


def _shift_of(declared: Mapping[Role, int], standing: Mapping[Role, int]) -> int:
    """Return the smallest shift between the roles that explains the numbers of both roles, or of one role while the
    other lacks instances.
    """
    by_prefill, by_decode = standing[Role.PREFILL] - declared[Role.PREFILL], declared[Role.DECODE] - standing[Role.DECODE]
    least, most = sorted((by_prefill, by_decode))
    return min(max(0, least), most)


def rewound(memory: ScalingMemory, now: float) -> ScalingMemory:
    """Return the memory without times after `now`. Such times exist if the clock was set back.

    Times after `now` are set to `now`, so a cooldown is repeated at most once.
    """
    ratio = memory.ratio
    return replace(
        memory,
        roles=tuple(_rewound(role, now) for role in memory.roles),
        ratio=replace(ratio, moved_at=None if ratio.moved_at is None else min(ratio.moved_at, now)),
    )


def _rewound(role: RoleMemory, now: float) -> RoleMemory:
    rebuilt_at = role.rebuilt_at if role.rebuilt_at is None else min(role.rebuilt_at, now)
    if rebuilt_at == role.rebuilt_at and all(step.at <= now for step in role.steps):
        return role
    return replace(role, rebuilt_at=rebuilt_at, steps=tuple(replace(step, at=min(step.at, now)) for step in role.steps))


def with_step(role: RoleMemory, replicas: int, now: float, kept_seconds: float) -> RoleMemory:
    """Return the memory after the number changed to `replicas`; steps older than `kept_seconds` are forgotten."""
    if replicas == role.replicas:
        return role
    steps = (*_since(role.steps, now - kept_seconds), Step(change=replicas - role.replicas, at=now))
    return replace(role, replicas=replicas, steps=steps)


def _since(steps: Iterable[Step], begin: float) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.at > begin)
