"""Copying: a prefix that many sessions share is copied to an instance that lacks it, before a session is sent to this
instance.

A copy saves one computation of the prefix if a session that begins with it is sent to the target soon. The likelihood
of such a session is computed from the number of sessions that began with the prefix in the last `WINDOW_SECONDS`,
spread over the instances. The cost is the predicted time to transfer a kept prompt that begins with the prefix. The
copy is made if the saving exceeds the cost by `LEAST_GAIN_SECONDS`. Copies are made one at a time.
`spec.routing.handOverBudget` limits the share of the time in which a copy is in progress. (In Mooncake, section 6.2,
hot prefixes are copied as a side effect of requests. This module copies them ahead of requests.)
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from math import exp
from typing import NamedTuple

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, CacheTransfer, MoveOutcome, ReRouteRecord
from fairlead.reports.units import Unit
from fairlead.routing.contracts.copies import KeptTurn, PrefixCopy
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import Stage
from fairlead.routing.scheduling import fetching
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.targets import instance_of, rank_of

WINDOW_SECONDS = 60.0
LEAST_GAIN_SECONDS = 0.1
FEWEST_SESSIONS = 2
MOST_TURNS = 256
"""Maximum number of sessions whose prompts are compared per decision; the newest sessions are used."""
MOST_PREFIXES = 8
"""Maximum number of prefixes whose holders are looked up per decision. The prefixes with the largest product of tokens
and sessions are used.
"""
MOST_PLACES = 16
"""Maximum number of sources, and of targets, that are compared for a prefix; the least busy are taken. So the time for
a decision does not grow with the pool.
"""


class _Shared(NamedTuple):
    """A prefix of `depth` blocks, and the turns whose prompts begin with it."""

    depth: int
    turns: Sequence[KeptTurn]

    @property
    def worth(self) -> int:
        return self.depth * len(self.turns)


class Copying:
    """Decides about the prefix copies of one scheduler, and records them."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._under_way: PrefixCopy | None = None
        self._rests_until = 0.0
        self._copied: dict[tuple[str, int], float] = {}
        """Time of the last copy of a prefix, by target and by the prefix's last block. Copies that failed are included.
        """

    def due(self, turns: Iterable[KeptTurn], now: float) -> PrefixCopy | None:
        """Return the copy to make now. It copies a prefix that some of these turns (newest first) share. None if no
        copy gains enough or another copy is in progress. Also None if several routers decide, because each of them
        would make the copy.
        """
        state = self._state
        share = state.table.routing.hand_over_budget if state.table.engine.copies_prefixes else 0.0
        if share <= 0 or self._under_way is not None or now < self._rests_until or state.is_front or state.view.routers > 1:
            return None
        state.view.now = now
        self._copied = {key: at for key, at in self._copied.items() if now - at < WINDOW_SECONDS}
        found = sorted(_shared(_newest(turns, now)), key=lambda one: -one.worth)[:MOST_PREFIXES]
        best = max((copy for one in found for copy in self._copies(one, now)), key=lambda copy: copy.gain_seconds, default=None)
        if best is not None:
            self._under_way = best
            state.handovers.asked(instance_of(best.source), now)
            self._copied |= dict.fromkeys(((best.target, block) for block in best.request.blocks), now)
        return best

    def done(self, copy: PrefixCopy, transfer: CacheTransfer, now: float) -> None:
        """Record that the copy was made or failed, and use its duration to predict later transfers. No further copy is
        made for as long as the budget requires.
        """
        state, transfer = self._state, replace(transfer, predicted_seconds=copy.cost_seconds)
        self._under_way = None
        self._rests_until = now + transfer.seconds * (1 / max(state.table.routing.hand_over_budget, 1e-3) - 1)
        if state.table.engine.handing_on is not None:
            fetching.learn(state, copy.source, copy.target, transfer, now)
        if transfer.fate is CacheFate.MOVED and copy.target in state.loads:
            state.prefixes.insert(copy.target, copy.request.blocks)
        state.recorder.copied(_record(copy, transfer, state, now))

    def _copies(self, shared: _Shared, now: float) -> Iterator[PrefixCopy]:
        """Yield the copies of a prefix whose gain is large enough."""
        state = self._state
        targets = [load for load in state.view.candidates() if not state.staying or load.entry.id in state.staying]
        begins = shared.turns[0].request.blocks[: shared.depth]
        tokens = shared.depth * (shared.turns[0].request.block_tokens or state.table.engine.block_tokens)
        coming = _coming(state, begins)
        chance = 1 - exp(-len(shared.turns) / max(1, len(targets)))
        carrier = min(shared.turns, key=lambda turn: turn.request.prompt_tokens).request
        request = replace(carrier, warms=True, session=None)
        held = state.view.hit_tokens_everywhere(request)
        holders = _least_busy([state.loads[name] for name, hit in held.items() if hit >= tokens and name in state.loads])
        lacking = [load for load in targets if held.get(load.entry.id, 0) < tokens and load.entry.id not in coming]
        for target in _least_busy([load for load in lacking if (load.entry.id, begins[-1]) not in self._copied]):
            there = held.get(target.entry.id, 0)
            saving = chance * state.prefill_times.seconds(tokens, there)
            for source in holders:
                if not fetching.can_hand_on(state, request, source.entry.id, target.entry.id, now):
                    continue
                cost = fetching.seconds(state, request, source.entry.id, target.entry.id)
                if saving - cost >= LEAST_GAIN_SECONDS:
                    yield PrefixCopy(
                        id=f"copy-{begins[-1]:016x}-{int(1e3 * now)}",
                        request=request,
                        source=source.entry.id,
                        target=target.entry.id,
                        began_at=now,
                        prefix_tokens=tokens,
                        source_tokens=held[source.entry.id],
                        target_tokens=there,
                        sessions=len(shared.turns),
                        saving_seconds=saving,
                        cost_seconds=cost,
                        longest_seconds=max(fetching.PATIENCE_SECONDS, saving),
                    )


def _least_busy(loads: Sequence[InstanceLoad]) -> Sequence[InstanceLoad]:
    """Return the `MOST_PLACES` least busy instances; all of them if there are fewer."""
    if len(loads) <= MOST_PLACES:
        return loads
    return nsmallest(MOST_PLACES, loads, key=lambda load: (load.transfers_out, load.dispatched_prefill_tokens))


def _newest(turns: Iterable[KeptTurn], now: float) -> list[KeptTurn]:
    """Return the turns of sessions that began recently; `turns` has the newest first."""
    found: list[KeptTurn] = []
    for turn in turns:
        if len(found) == MOST_TURNS or now - turn.at >= WINDOW_SECONDS:
            break
        if now - turn.began < WINDOW_SECONDS and turn.request.blocks:
            found.append(turn)
    return found


def _shared(turns: Sequence[KeptTurn]) -> Iterator[_Shared]:
    """Yield every prefix after which the prompts differ, with the turns whose prompts begin with it. These prefixes are
    the inner nodes of the prompts' tree. They are found from the common prefixes of neighbours in sorted order.
    """
    ordered = sorted(turns, key=lambda turn: turn.request.blocks)
    open_prefixes: list[tuple[int, int]] = []
    for place in range(1, len(ordered) + 1):
        common = 0 if place == len(ordered) else _common(ordered[place - 1].request, ordered[place].request)
        first = place - 1
        while open_prefixes and open_prefixes[-1][0] > common:
            depth, first = open_prefixes.pop()
            if place - first >= FEWEST_SESSIONS:
                yield _Shared(depth, ordered[first:place])
        if common and (not open_prefixes or open_prefixes[-1][0] < common):
            open_prefixes.append((common, first))


def _common(one: RoutingRequest, other: RoutingRequest) -> int:
    """Return the number of leading blocks that two prompts share, in logarithmic time, because the hashes are
    chained.
    """
    shorter = min(len(one.blocks), len(other.blocks))
    return bisect_left(range(shorter), True, key=lambda place: one.blocks[place] != other.blocks[place])


def _coming(state: SchedulerState, begins: Sequence[int]) -> set[str]:
    """Return the targets that will soon hold the prefix without a copy: a request whose prompt begins with the prefix
    waits there or is being computed there.
    """
    depth, last = len(begins), begins[-1]
    return {
        tracked.instance
        for tracked in state.requests.values()
        if tracked.stage in (Stage.QUEUED, Stage.PREFILLING)
        and len(tracked.request.blocks) >= depth
        and tracked.request.blocks[depth - 1] == last
    }


def _record(copy: PrefixCopy, transfer: CacheTransfer, state: SchedulerState, now: float) -> ReRouteRecord:
    """Return the record of a copy. It has two values in seconds: the predicted saving, and the threshold that the
    saving exceeded (the predicted cost plus the least gain).
    """
    lacking = max(0, copy.source_tokens - copy.target_tokens)
    return ReRouteRecord(
        id=state.recorder.new_id(),
        pool=state.table.pool,
        session=None,
        request=copy.id,
        source=instance_of(copy.source),
        source_rank=rank_of(copy.source),
        target=instance_of(copy.target),
        target_rank=rank_of(copy.target),
        trigger=BindingReason.PREFIX_COPIED,
        crossed=copy.saving_seconds,
        threshold=copy.cost_seconds + LEAST_GAIN_SECONDS,
        crossed_unit=Unit.SECONDS,
        at=copy.began_at,
        predicted_source_ttft_seconds=None,
        predicted_target_ttft_seconds=None,
        benefit_seconds=None,
        tokens_moved=min(lacking, transfer.tokens),
        source_hit_tokens=copy.source_tokens,
        target_hit_tokens=copy.target_tokens,
        cache=transfer.fate,
        transfer_seconds=transfer.seconds,
        predicted_transfer_seconds=copy.cost_seconds,
        transfer_bytes=transfer.bytes,
        outcome=MoveOutcome.COMPLETED if transfer.fate is CacheFate.MOVED else MoveOutcome.FAILED,
    )
