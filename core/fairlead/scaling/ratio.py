"""The controller of the ratio of prefill to decode instances: decides whether an instance should move from decode to
prefill or back. Mooncake's paper does not define such a controller.

Every period the loads (predicted latencies over their SLO) and the arriving work are smoothed. There are two reasons to
move one instance. Either the loads are out of balance: one role's load exceeds the other's by more than `band`,
smoothed and in the newest comparison, and is above `receiver_load` while the other is below `donor_load`. Or the work
is more than the instances of a role can do, and a move would serve more of it (`overload`); loads do not show this if
excess requests are refused.

The move is made after `periods` comparisons in a row that call for it; then nothing moves for `cooldown_seconds`, and
smoothing restarts. A comparison does not count while the receiver has an instance that does not serve yet, because the
figures do not include its effect yet. If the loads oscillate, as prefill and decode do under early rejection, they call
for opposite moves in turn, so no move is made unless half an oscillation is longer than these comparisons.

A move must also pay: after the move, the pool must serve more requests, or equally many with less work for its busier
role. This is computed from the arriving work (`sizing`) or, if the work is unknown, from the loads. It must hold in
each of these comparisons, and also if the smoothed work is wrong by its standard error, which shrinks with the number
of comparisons. Of two neighbouring splits at most one is better, so a move is never reverted under constant work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairlead.instances import Role
from fairlead.scaling.memory import RatioMemory
from fairlead.scaling.overload import Demand, Outlook, outlook
from fairlead.scaling.recommendations import Cause, Hold, Imbalance
from fairlead.scaling.specs import RatioSpec
from fairlead.scaling.stabilization import is_due, is_interrupted

SMOOTHING = 0.5
"""Weight of the newest figure in a smoothed figure, if there are many figures. Each older figure has half the weight of
the figure after it. The first figure gets no extra weight, so that figures from before the traffic began are soon
forgotten.
"""

_MOVES = ((1, Role.PREFILL, Role.DECODE), (-1, Role.DECODE, Role.PREFILL))
"""For each sign of `RatioMemory.beyond`: the sign, the role that receives an instance, and the role that loses one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleShare:
    """One role, as the controller sees it.

    `work` is the number of instances that the arriving work keeps busy all the time, None if unknown. `serving` of its
    `replicas` instances take requests.
    """

    replicas: int
    serving: int
    least: int
    most: int
    load: float | None
    work: float | None = None


Shares = Mapping[Role, RoleShare]
"""The shares of prefill and decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move that the figures call for; `hold` says why it is not made, None if it is made."""

    receiver: Role
    hold: Hold | None
    cause: Cause
    imbalance: Imbalance


def compare(memory: RatioMemory, seen: Shares, demand: Demand, spec: RatioSpec, now: float) -> tuple[RatioMemory, Move | None]:
    """Return the memory after this round, and the move that the figures call for, if any. The memory does not include
    that move yet.
    """
    prefill, decode = seen[Role.PREFILL], seen[Role.DECODE]
    if not is_due(memory.compared_at, now, spec.period_seconds) or prefill.load is None or decode.load is None:
        return memory, None
    if is_interrupted(memory.compared_at, now, spec.period_seconds):
        memory = RatioMemory(shift=memory.shift, moved_at=memory.moved_at, told=memory.told)
    comparisons = memory.comparisons + 1
    weight = SMOOTHING / (1 - (1 - SMOOTHING) ** comparisons)
    prefill_load, decode_load = _smoothed(memory.prefill_load, prefill.load, weight), _smoothed(memory.decode_load, decode.load, weight)
    prefill_work = None if prefill.work is None else _smoothed(memory.prefill_work, prefill.work, weight)
    decode_work = None if decode.work is None else _smoothed(memory.decode_work, decode.work, weight)
    shares = {
        Role.PREFILL: replace(prefill, load=prefill_load, work=prefill_work),
        Role.DECODE: replace(decode, load=decode_load, work=decode_work),
    }
    short = _short(shares, seen, demand, spec)
    sign = short or _apart(shares, seen, spec)
    receiver, donor = next(((taker, giver) for of, taker, giver in _MOVES if of == sign), (Role.PREFILL, Role.DECODE))
    if seen[receiver].serving < seen[receiver].replicas:
        sign = 0  # what it has on its way is not seen yet in any load
    memory = replace(
        memory,
        compared_at=now,
        comparisons=comparisons,
        prefill_load=prefill_load,
        decode_load=decode_load,
        prefill_work=prefill_work,
        decode_work=decode_work,
        beyond=sign * (max(sign * memory.beyond, 0) + 1),
        worth=memory.worth + 1 if sign and _is_worth_it(seen, receiver, donor, demand) else 0,
    )
    if abs(memory.beyond) < spec.periods:
        return memory, None
    now_served, then_served = _outlooks(shares, receiver, donor, demand)
    return memory, Move(
        receiver=receiver,
        hold=_hold(memory, shares, receiver, donor, demand, spec, now),
        cause=Cause.WORK_EXCEEDS if short else Cause.LOADS_APART,
        imbalance=Imbalance(
            prefill_load=prefill_load,
            decode_load=decode_load,
            comparisons=abs(memory.beyond),
            donor=donor,
            donor_replicas=shares[donor].replicas,
            servable=None if now_served is None else now_served.servable,
            servable_after=None if then_served is None else then_served.servable,
        ),
    )


def moved(memory: RatioMemory, receiver: Role, now: float) -> RatioMemory:
    """Return the memory after one instance moved to `receiver`. Smoothed loads are dropped, because they belong to the
    old split.
    """
    change = 1 if receiver is Role.PREFILL else -1
    return replace(memory, shift=memory.shift + change, moved_at=now, beyond=0, worth=0, prefill_load=None, decode_load=None)


def _smoothed(before: float | None, seen: float, weight: float) -> float:
    return seen if before is None else weight * seen + (1 - weight) * before


def _apart(shares: Shares, seen: Shares, spec: RatioSpec) -> int:
    """Return the sign of the move that the loads call for; 0 while they are in balance."""
    for sign, taker, giver in _MOVES:
        apart = min((of[taker].load or 0.0) - (of[giver].load or 0.0) for of in (shares, seen))
        if apart > spec.band and (shares[giver].load or 0.0) < spec.donor_load and (shares[taker].load or 0.0) > spec.receiver_load:
            return sign
    return 0


def _short(shares: Shares, seen: Shares, demand: Demand, spec: RatioSpec) -> int:
    """Return the sign of the move that a role's overload calls for; 0 if there is no overload, or no move would
    help.
    """
    now_served, _ = _outlooks(shares, Role.PREFILL, Role.DECODE, demand)
    if any(share.work is None for share in shares.values()) or now_served is None or now_served.busiest <= 1:
        return 0
    error = _error(demand, spec, 0)
    for sign, taker, giver in _MOVES:
        if _is_worth_it(shares, taker, giver, demand, error) and _is_worth_it(seen, taker, giver, demand):
            return sign
    return 0


def _hold(memory: RatioMemory, shares: Shares, receiver: Role, donor: Role, demand: Demand, spec: RatioSpec, now: float) -> Hold | None:
    giver, taker = shares[donor], shares[receiver]
    if giver.replicas - 1 < max(1, giver.least) or taker.replicas + 1 > taker.most:
        return Hold.AT_BOUND
    if memory.worth < spec.periods or not _is_worth_it(shares, receiver, donor, demand, _error(demand, spec, memory.worth)):
        return Hold.NOT_WORTH_IT
    if memory.moved_at is not None and now - memory.moved_at < spec.cooldown_seconds:
        return Hold.COOLDOWN
    return None


def _error(demand: Demand, spec: RatioSpec, row: int) -> float:
    """Return the standard error of the smoothed work after `row` consecutive comparisons that found a move worth it.
    The error shrinks with each further comparison.

    An exponential mean is as precise as a mean over (2 - a) / a figures.
    """
    figures = max((2 - SMOOTHING) / SMOOTHING, row)
    return demand.error(demand.window_seconds + spec.period_seconds * (figures - 1))


def _is_worth_it(shares: Shares, receiver: Role, donor: Role, demand: Demand, error: float = 0.0) -> bool:
    """Return whether the pool serves more after the move, even if the measured works are wrong by `error` to the
    disadvantage of the move.
    """
    before, after = _outlooks(shares, receiver, donor, demand, error)
    return before is not None and after is not None and after.is_better_than(before)


def _outlooks(shares: Shares, receiver: Role, donor: Role, demand: Demand, error: float = 0.0) -> tuple[Outlook | None, Outlook | None]:
    """Return the outlooks before and after a move, computed from the loads if the work of a role is unknown. An outlook
    is None if a role would have no instance.
    """
    known = all(share.work is not None for share in shares.values())
    works = {role: (share.work or 0.0) if known else (share.load or 0.0) * share.replicas for role, share in shares.items()}
    works |= {receiver: works[receiver] * (1 - error), donor: works[donor] * (1 + error)}
    found: list[Outlook | None] = []
    for change in (0, 1):
        replicas = {receiver: shares[receiver].replicas + change, donor: shares[donor].replicas - change}
        if min(replicas.values()) < 1:
            found.append(None)
            continue
        prefill, decode = ((replicas[role], works[role]) for role in (Role.PREFILL, Role.DECODE))
        found.append(outlook(prefill, decode, demand))
    return found[0], found[1]
