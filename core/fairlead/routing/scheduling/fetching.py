"""Fetching: whether a session that moves takes its KV blocks along, how long its request may wait for them, and what is
learned from it. For pools whose engines hand blocks on when they are asked (`spec.engine.kvTransfer`).

The instance that holds the blocks also computes the new part of the prompt, since it hands on the blocks of a whole
prompt. So a move with a transfer costs the computation of the new part there, after its other work, plus the transfer;
without a transfer the new instance computes the whole prompt.
"""

from fairlead.instances import REACHABLE
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import EVERY_MOVE
from fairlead.targets import instance_of, rank_of


def can_fetch(state: SchedulerState, tracked: TrackedRequest, source: str, target: str, now: float) -> bool:
    """Whether the request can let `target` fetch its blocks from `source` first. Simulated engines fetch without being
    asked.
    """
    if state.table.engine.kv_transfer is None:
        return state.table.engine.modelled.kv_transfer_bytes_per_second > 0
    load, request = state.loads.get(source), tracked.request
    if load is None or load.entry.state not in REACHABLE or load.is_shut(now) or source == target or tracked.tried:
        return False
    if not request.movable or rank_of(source) is not None or rank_of(target) is not None:
        return False
    may_try = state.transfers.may_try(source, target, now) and not state.handovers.rests(instance_of(source), now)
    return may_try and load.entry.pairs_with(state.loads[target].entry)


def bring_along(state: SchedulerState, tracked: TrackedRequest, home: str, target: str, now: float) -> None:
    """The request's session leaves `home` for `target`: let `target` fetch its blocks first, if possible and faster."""
    facts = state.table.engine.kv_transfer
    if facts is None or tracked.transfer_from is not None or not can_fetch(state, tracked, home, target, now):
        return
    held, there = state.view.hit_tokens(tracked.request, home), state.view.hit_tokens(tracked.request, target)
    if held > there and (facts.when == EVERY_MOVE or _seconds(state, tracked, home, target) < _computing(state, tracked, there)):
        tracked.transfer_from = home


def begin(state: SchedulerState, tracked: TrackedRequest, now: float) -> tuple[float | None, float]:
    """For a request about to be sent: the predicted seconds of the transfer that comes first, and the seconds after
    which it is given up. None and 0 if engines fetch without being asked, or nothing is fetched.
    """
    facts, source = state.table.engine.kv_transfer, tracked.transfer_from
    if facts is None or source is None:
        return None, 0.0
    tracked.asked_of = source
    state.handovers.asked(instance_of(source), now)
    there = state.view.hit_tokens(tracked.request, tracked.instance)
    return _seconds(state, tracked, source, tracked.instance), facts.longest_seconds or _computing(state, tracked, there)


def heard(state: SchedulerState, tracked: TrackedRequest, transfer: CacheTransfer, now: float) -> None:
    """The attempt to fetch the request's blocks is over."""
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


def _computing(state: SchedulerState, tracked: TrackedRequest, held: int) -> float:
    return state.prefill_times.seconds(tracked.request.prompt_tokens, held)


def _seconds(state: SchedulerState, tracked: TrackedRequest, source: str, target: str) -> float:
    """Predicted seconds until `target` has the blocks: `source` finishes its present work, computes the new part, and
    the blocks are transferred.
    """
    request, view, declared = tracked.request, state.view, state.table.engine.kv_transfer
    held, there = view.hit_tokens(request, source), view.hit_tokens(request, target)
    lacking = max(1, held - there)
    load = state.loads[source]
    ahead = max(0.0, load.dispatched_prefill_tokens / state.prefill_times.speed - load.done_seconds(view.now))
    speed = None if declared is None else declared.tokens_per_second
    sending = state.transfers.seconds(source, target, lacking, lacking / state.prefill_times.speed, speed)
    return ahead + _computing(state, tracked, held) + sending * (1 + load.transfers_out)
