"""Fetching: decides whether the KV blocks of a moving session are fetched from its old instance, limits the time that
its request waits for the blocks, and measures the transfer. It applies to pools whose engines transfer blocks on
request (`spec.engine.kvTransfer`).

The instance that holds the blocks also computes the new part of the prompt, because an engine transfers only the blocks
of a whole prompt. So a move with a transfer has two costs: the old home computes the new part after its other work, and
the blocks are transferred. Without a transfer the new instance computes the whole prompt.
"""

from fairlead.instances import REACHABLE
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.choosing.transfers import sending_seconds
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.prefill_decode import hit_or_fetched_tokens
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import EVERY_MOVE
from fairlead.targets import instance_of, rank_of

PATIENCE_SECONDS = 10.0
"""Minimum seconds after which a transfer is abandoned, for transfers for which no client waits."""


def can_fetch(state: SchedulerState, tracked: TrackedRequest, source: str, target: str, now: float) -> bool:
    """Return whether `target` can fetch the request's blocks from `source` before it computes the other tokens. False
    for a request that was already sent to an engine. For simulated engines, return whether they fetch blocks at all.
    """
    may = state.table.engine.handing_on is None or not tracked.tried
    return may and can_hand_on(state, tracked.request, source, target, now)


def can_hand_on(state: SchedulerState, request: RoutingRequest, source: str, target: str, now: float) -> bool:
    """Return whether the blocks of the request's prompt can be transferred from `source` to `target`. For simulated
    engines, return whether they transfer blocks at all.
    """
    if state.table.engine.handing_on is None:
        return state.table.engine.modelled.kv_transfer_bytes_per_second > 0
    return hands_on(state, request, source, target, now)


def hands_on(state: SchedulerState, request: RoutingRequest, source: str, target: str, now: float) -> bool:
    """Return whether `source` can be asked to transfer the blocks of the request's prompt to `target`."""
    load = state.loads.get(source)
    if load is None or load.entry.state not in REACHABLE or load.is_shut(now) or source == target:
        return False
    if not request.movable or rank_of(source) is not None or rank_of(target) is not None:
        return False
    may_try = state.transfers.may_try(source, target, now, waits=not request.warms) and not state.handovers.rests(instance_of(source), now)
    return may_try and load.entry.pairs_with(state.loads[target].entry)


def bring_along(state: SchedulerState, tracked: TrackedRequest, home: str, target: str, now: float) -> None:
    """Let the request, whose session leaves `home` for `target`, fetch its blocks from `home`, if this is possible and
    faster than computing them. If no client waits for the request, it fetches whenever possible, so that almost nothing
    is computed.
    """
    facts, request = state.table.engine.handing_on, tracked.request
    if facts is None or tracked.transfer_from is not None or not can_fetch(state, tracked, home, target, now):
        return
    held, there = state.view.hit_tokens(request, home), state.view.hit_tokens(request, target)
    always = facts.when == EVERY_MOVE or request.warms
    if held > there and (always or seconds(state, request, home, target) < _computing(state, request, there)):
        tracked.transfer_from = home


def lacks(state: SchedulerState, request: RoutingRequest, source: str, target: str, now: float) -> float:
    """Return the seconds by which the new prompt's computing takes longer after a move than the policy assumes. The
    policy uses one transfer speed for all pairs of instances. A move takes longer if `source` is busy, if the pair is
    slow, or if `source` cannot be asked, so that `target` computes the prompt. 0 for simulated engines, which fetch
    blocks without a request to do so.
    """
    speed = state.view.fetching(request)
    if state.table.engine.handing_on is None or speed is None:
        return 0.0
    held, there = state.view.hit_tokens(request, source), state.view.hit_tokens(request, target)
    reckoned = speed.latency_seconds + max(0, held - there) * speed.size / speed.rate + _computing(state, request, held)
    takes = _computing(state, request, there)
    if hands_on(state, request, source, target, now):
        takes = min(takes, seconds(state, request, source, target))
    return max(0.0, takes - reckoned)


def hit_or_fetched(state: SchedulerState, tracked: TrackedRequest) -> int:
    """Return the number of prompt tokens that need not be computed for a request that is about to be sent.

    A planned transfer of blocks is cancelled if it would now take too long. Two kinds of transfers are never cancelled:
    transfers of a pool that requires a transfer with every move, and transfers for which no client waits. The second
    kind costs little computing, and only an attempt can correct a wrong prediction.
    """
    hit, source = hit_or_fetched_tokens(tracked, tracked.instance, state.loads, state.view), tracked.transfer_from
    if source is None or tracked.request.warms or state.table.engine.handing_on is None:
        return hit
    predicted = seconds(state, tracked.request, source, tracked.instance)
    if state.table.engine.handing_on.when == EVERY_MOVE or predicted <= _longest(state, tracked.request, tracked.instance):
        return hit
    tracked.transfer = CacheTransfer(fate=CacheFate.LATE, seconds=0.0, predicted_seconds=predicted)
    tracked.transfer_from, tracked.transfer_tokens = None, 0
    return state.view.hit_tokens(tracked.request, tracked.instance)


def begin(state: SchedulerState, tracked: TrackedRequest, now: float) -> tuple[float | None, float]:
    """Return, for a request that is about to be sent, the predicted seconds of the transfer that precedes its prefill,
    and the seconds after which the transfer is abandoned. None and 0 if nothing is fetched, or if engines fetch without
    a request to do so.
    """
    source = tracked.transfer_from
    if state.table.engine.handing_on is None or source is None:
        return None, 0.0
    tracked.asked_of = source
    state.handovers.asked(instance_of(source), now)
    return seconds(state, tracked.request, source, tracked.instance), _longest(state, tracked.request, tracked.instance)


def heard(state: SchedulerState, tracked: TrackedRequest, transfer: CacheTransfer, now: float) -> None:
    """Record that the attempt to fetch the request's blocks is over."""
    if tracked.transfer_from is not None and transfer.fate in (CacheFate.MOVED, CacheFate.UNNAMED):
        state.handovers.note(instance_of(tracked.transfer_from), now, named_blocks=transfer.fate is CacheFate.MOVED)
    source, target = tracked.asked_of, tracked.instance
    if source is None or tracked.transfer is not None:
        return
    rest = state.prefill_times.seconds(tracked.request.prompt_tokens, tracked.hit_tokens)
    state.transfers.observe(source, target, transfer, transfer.seconds - rest, now)
    tracked.transfer = transfer
    if transfer.fate is not CacheFate.MOVED and tracked.stage is Stage.PREFILLING:
        state.accounting.not_fetched(tracked, state.view.hit_tokens(tracked.request, target), now)


def learn(state: SchedulerState, source: str, target: str, transfer: CacheTransfer, now: float) -> None:
    """Record a transfer for which no request waited. Its duration is used to predict later transfers. Also record
    whether the engine of `source` named the blocks to fetch, if the transfer shows this.
    """
    if transfer.fate in (CacheFate.MOVED, CacheFate.UNNAMED):
        state.handovers.note(instance_of(source), now, named_blocks=transfer.fate is CacheFate.MOVED)
    state.transfers.observe(source, target, transfer, transfer.seconds, now)


def _longest(state: SchedulerState, request: RoutingRequest, target: str) -> float:
    """Return the seconds after which a transfer to `target` is abandoned."""
    facts = state.table.engine.handing_on
    assert facts is not None
    longest = facts.longest_seconds or _computing(state, request, state.view.hit_tokens(request, target))
    return max(PATIENCE_SECONDS, longest) if request.warms else longest


def _computing(state: SchedulerState, request: RoutingRequest, held: int) -> float:
    return state.prefill_times.seconds(request.prompt_tokens, held)


def seconds(state: SchedulerState, request: RoutingRequest, source: str, target: str) -> float:
    """Return the predicted seconds until `target` has the blocks. First, `source` finishes its other prefills and
    computes the new part of the prompt; then it sends the blocks. Simulated engines send the blocks that they hold at
    once.
    """
    view, declared = state.view, state.table.engine.handing_on
    held, there = view.hit_tokens(request, source), view.hit_tokens(request, target)
    lacking = max(1, held - there)
    load = state.loads[source]
    if declared is None and (model := view.fetching(request)) is not None:
        return model.latency_seconds + sending_seconds(lacking, load.transfers_out, model)
    ahead = max(0.0, load.dispatched_prefill_tokens / state.prefill_times.speed - load.done_seconds(view.now))
    speed = None if declared is None else declared.tokens_per_second
    sending = state.transfers.seconds(source, target, lacking, lacking / state.prefill_times.speed, speed)
    share = 1 if state.transfers.is_measured else 1 + load.transfers_out
    return ahead + _computing(state, request, held) + sending * share
