"""What scaling must remember from one round to the next, also over a restart of the operator.

The operator keeps a `ScalingMemory` in the pool's `status.scaling`, as JSON. It changes only when something is compared
(every `period` of `spec.scaling` and `spec.ratio`) or steps, so a pool at rest is not written in every round, and it is
empty while both modes are Fixed. The API promises nothing of a status: it may be lost, and a restored or re-created
pool has none. Then the memory is rebuilt from the numbers that stand (`rebuilt`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fairlead.instances import MAX_REPLICAS, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """A number of instances that was recommended, and when last. Unix seconds."""

    replicas: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of a role's number that was made: `change` instances more. Unix seconds."""

    change: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """When a role came from zero, in Unix seconds, and the prompt tokens that were held then."""

    at: float
    held_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMemory:
    """One role. `replicas` is the number last decided, after all bounds."""

    role: Role
    declared: int
    replicas: int
    compared_at: float | None = None
    """When the need was last computed from signals; None when it never was."""
    highest: tuple[Recommended, ...] = ()
    """Recommendations that no later one exceeds, oldest first: the first one in a window is its highest."""
    lowest: tuple[Recommended, ...] = ()
    """Recommendations that no later one falls below, oldest first: the first one in a window is its lowest."""
    steps: tuple[Step, ...] = ()
    told: str = ""
    """The last recommendation, so that only changes are recorded."""
    rebuilt_at: float | None = None
    """When the number was rebuilt from the present instances because no memory existed; earlier steps are not known."""
    woken: Woken | None = None
    """None if the role has not been started from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMemory:
    """The ratio controller. Loads are predicted latencies over their SLO."""

    shift: int = 0
    """Instances moved from decode to prefill since the numbers were declared; negative = the other way."""
    compared_at: float | None = None
    comparisons: int = 0
    """Comparisons that are smoothed in the figures below."""
    prefill_load: float | None = None
    decode_load: float | None = None
    """Smoothed; None before the first comparison after a start or a move."""
    prefill_work: float | None = None
    decode_work: float | None = None
    """Instances kept busy by what arrives, smoothed; None if that is not known."""
    beyond: int = 0
    """Comparisons in a row that found prefill short of instances; negative = decode."""
    worth: int = 0
    """Of these, the most recent ones in a row that found a move worth it for the measured work."""
    moved_at: float | None = None
    told: str = ""
    """As in `RoleMemory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMemory:
    """What scaling remembers of all roles."""

    roles: tuple[RoleMemory, ...] = ()
    ratio: RatioMemory = field(default_factory=RatioMemory)

    def of(self, role: Role) -> RoleMemory | None:
        """The memory of a role; None if there is none."""
        return next((one for one in self.roles if one.role is role), None)


def is_plausible(memory: ScalingMemory) -> bool:
    """Whether this can have been decided; otherwise it is treated as missing."""
    return all(0 <= role.replicas <= MAX_REPLICAS and 0 <= role.declared <= MAX_REPLICAS for role in memory.roles)


def rebuilt(memory: ScalingMemory, declared: Mapping[Role, int], standing: Mapping[Role, int], now: float) -> ScalingMemory:
    """The memory with what it lacks taken from the numbers that stand. `standing` is empty if nothing was lost.

    What happened before is not known, so a whole period passes before the next step of a role, and where
    instances had moved from one role to the other, a whole cooldown before the next move.
    """
    lacking = [role for role in declared if role in standing and memory.of(role) is None]
    found = (RoleMemory(role=role, declared=declared[role], replicas=standing[role], rebuilt_at=now) for role in lacking)
    ratio = memory.ratio
    if lacking and ratio == RatioMemory() and {Role.PREFILL, Role.DECODE} <= declared.keys() & standing.keys():
        shift = _shift_of(declared, standing)
        ratio = replace(ratio, shift=shift, moved_at=now) if shift else ratio
    return replace(memory, roles=(*memory.roles, *found), ratio=ratio)


def _shift_of(declared: Mapping[Role, int], standing: Mapping[Role, int]) -> int:
    """The smallest shift that explains the numbers: those of both roles, or of one role while the other lacks
    instances.
    """
    by_prefill, by_decode = standing[Role.PREFILL] - declared[Role.PREFILL], declared[Role.DECODE] - standing[Role.DECODE]
    least, most = sorted((by_prefill, by_decode))
    return min(max(0, least), most)


def rewound(memory: ScalingMemory, now: float) -> ScalingMemory:
    """The memory with no time after `now`, in case the clock was set back.

    What seems to happen in the future happened just now, so a cooldown lasts at most once more.
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
    """The memory after the number went to `replicas`; steps older than `kept_seconds` are forgotten."""
    if replicas == role.replicas:
        return role
    steps = (*_since(role.steps, now - kept_seconds), Step(change=replicas - role.replicas, at=now))
    return replace(role, replicas=replicas, steps=steps)


def _since(steps: Iterable[Step], begin: float) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.at > begin)
