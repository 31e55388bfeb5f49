"""Whether an instance should go from decode to prefill or back: the controller that Mooncake's paper leaves open.

Every period the loads (predicted latencies over their SLO) and the work that arrives are smoothed. The roles are out of
balance when one's load exceeds the other's by more than `band`, smoothed and as just seen, is above `receiver_load` and
finds the other below `donor_load`. After `periods` comparisons in a row that are out of balance the same way one
instance moves; then nothing moves for `cooldown_seconds`, and the loads are smoothed anew.

Loads that swing against each other, as prefill and decode do under early rejection, fill no such row unless half a
swing outlasts it. And a move must be worth it: by the work that arrives (`sizing`), or by the loads where that is not
known, the busier role of the two must be less busy after the move than before, smoothed and in each comparison of the
row. Under constant work each move thus lowers one and the same figure, so none is ever taken back.
"""

from dataclasses import dataclass, replace

from fairlead.instances import Role
from fairlead.scaling.memory import RatioMemory
from fairlead.scaling.recommendations import Hold, Imbalance
from fairlead.scaling.specs import RatioSpec
from fairlead.scaling.stabilization import is_due, is_interrupted

SMOOTHING = 0.3
"""Weight of the newest figure."""

_WORTH_IT = 0.05
"""Share by which the busier role must become less busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleShare:
    """One role, as the controller sees it. `work` in instances kept busy all the time, None where it is not known."""

    replicas: int
    least: int
    most: int
    load: float | None
    work: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move that was called for; `hold` says why it is not made."""

    receiver: Role
    hold: Hold | None
    imbalance: Imbalance


def compare(memory: RatioMemory, prefill: RoleShare, decode: RoleShare, spec: RatioSpec, now: float) -> tuple[RatioMemory, Move | None]:
    """The memory after this round, and a move if the loads call for one. The move is not yet made in the memory."""
    if not is_due(memory.compared_at, now, spec.period_seconds) or prefill.load is None or decode.load is None:
        return memory, None
    if is_interrupted(memory.compared_at, now, spec.period_seconds):
        memory = RatioMemory(shift=memory.shift, moved_at=memory.moved_at, told=memory.told)
    prefill_load, decode_load = _smoothed(memory.prefill_load, prefill.load), _smoothed(memory.decode_load, decode.load)
    beyond = _beyond(memory.beyond, (prefill_load, decode_load), (prefill.load, decode.load), spec)
    memory = replace(
        memory,
        compared_at=now,
        prefill_load=prefill_load,
        decode_load=decode_load,
        prefill_work=None if prefill.work is None else _smoothed(memory.prefill_work, prefill.work),
        decode_work=None if decode.work is None else _smoothed(memory.decode_work, decode.work),
        beyond=beyond,
    )
    receiver, donor = (Role.PREFILL, Role.DECODE) if beyond > 0 else (Role.DECODE, Role.PREFILL)
    seen = {Role.PREFILL: prefill, Role.DECODE: decode}
    memory = replace(memory, worth=memory.worth + 1 if beyond and _is_worth_it(seen[donor], seen[receiver]) else 0)
    if abs(beyond) < spec.periods:
        return memory, None
    shares = {
        Role.PREFILL: replace(prefill, load=prefill_load, work=memory.prefill_work),
        Role.DECODE: replace(decode, load=decode_load, work=memory.decode_work),
    }
    return memory, Move(
        receiver=receiver,
        hold=_hold(memory, shares[donor], shares[receiver], spec, now),
        imbalance=Imbalance(
            prefill_load=prefill_load,
            decode_load=decode_load,
            comparisons=abs(beyond),
            donor=donor,
            donor_replicas=shares[donor].replicas,
        ),
    )


def moved(memory: RatioMemory, receiver: Role, now: float) -> RatioMemory:
    """The memory after one instance went to `receiver`: the loads smoothed so far belong to the old split."""
    change = 1 if receiver is Role.PREFILL else -1
    return replace(memory, shift=memory.shift + change, moved_at=now, beyond=0, worth=0, prefill_load=None, decode_load=None)


def _smoothed(before: float | None, seen: float) -> float:
    return seen if before is None else SMOOTHING * seen + (1 - SMOOTHING) * before


def _beyond(before: int, smoothed: tuple[float, float], seen: tuple[float, float], spec: RatioSpec) -> int:
    """Comparisons in a row that found prefill short; negative = decode. Pairs are the loads of prefill and decode."""
    for sign, taker, giver in ((1, 0, 1), (-1, 1, 0)):
        apart = min(pair[taker] - pair[giver] for pair in (smoothed, seen))
        if apart > spec.band and smoothed[giver] < spec.donor_load and smoothed[taker] > spec.receiver_load:
            return sign * (max(sign * before, 0) + 1)
    return 0


def _hold(memory: RatioMemory, giver: RoleShare, taker: RoleShare, spec: RatioSpec, now: float) -> Hold | None:
    if giver.replicas - 1 < max(1, giver.least) or taker.replicas + 1 > taker.most:
        return Hold.AT_BOUND
    if memory.worth < spec.periods or not _is_worth_it(giver, taker):
        return Hold.NOT_WORTH_IT
    if memory.moved_at is not None and now - memory.moved_at < spec.cooldown_seconds:
        return Hold.COOLDOWN
    return None


def _is_worth_it(giver: RoleShare, taker: RoleShare) -> bool:
    """Whether the busier role is less busy after the move, if a role's instances share its load."""
    if giver.replicas < 2:
        return False
    given, taken = giver.work, taker.work
    if given is None or taken is None:
        given, taken = (giver.load or 0.0) * giver.replicas, (taker.load or 0.0) * taker.replicas
    before = max(given / giver.replicas, taken / taker.replicas)
    after = max(given / (giver.replicas - 1), taken / (taker.replicas + 1))
    return after < before * (1 - _WORTH_IT)
