"""What stands out in an instance's load, in sentences. Pure: every number is one of the explanation's own."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from fairlead_client.resources.load_explanations import LoadExplanation, SenderShare, WindowFigure

WORDS = {
    "pending_prefill_tokens": "pending prefill",
    "running": "running requests",
    "waiting": "waiting requests",
    "in_flight": "requests in flight",
    "kv_usage": "KV cache use",
    "ttft_p95": "TTFT p95",
    "tpot_p95": "TPOT p95",
    "hit_rate": "the prefix hit rate",
    "requests": "requests",
    "failed": "failed requests",
}
MUCH = 1.5
"""Factor from which a figure stands out beside the others' or beside its own before."""
FEW_SHARE = 0.5
"""Few sessions with at least this share of the tokens are worth naming."""
FEW_RECORDED = 5
"""With fewer requests, no shares are reported, even if all are recorded."""
SLO_METRICS = {"ttft_p95": "TTFT", "tpot_p95": "TPOT"}
"""The SLO's name for each metric that it limits: these show whether an instance, or the pool, is short of capacity."""
SHORTLY = timedelta(minutes=1)
"""A change at most this many seconds before a stretch, or within the stretch's own length before it, may be its cause.
"""


def causes(found: LoadExplanation) -> list[str]:
    """Sentences, the most telling first; an empty list if nothing stands out."""
    by_metric = {figure.metric: figure for figure in found.figures}
    figure = by_metric[found.metric]
    made = [*_beside_others(figure, by_metric), *_since_before(figure), *_senders(found), *_traffic(found, by_metric), *_moves(found)]
    return [*made, *_changes(found)]


def _beside_others(figure: WindowFigure, by_metric: dict[str, WindowFigure]) -> Iterator[str]:
    """Whether it had more or less than others, and whether it alone was short, which only the SLO's metrics show."""
    value, others = figure.compared, figure.others
    if value is None or others is None:
        return
    words = WORDS[figure.metric]
    here, there = told(value, figure.unit), told(others, figure.unit)
    median = f"the median of the {figure.others_count} others" if figure.others_count > 1 else "the other instance"
    if value > others * MUCH:
        times = f"{value / others:.1f} times {median} ({there.removesuffix(' tokens')})" if others > 0 else f"where {median} had none"
        yield f"Higher here: {here}, {times}."
    elif others > value * MUCH:
        yield f"Others had more: {words} reached {here} here; {median} had {there}."
    else:
        yield f"It was like the others: {words} reached {here}; {median} had {there}."
    yield from _short(figure, by_metric)


def _short(figure: WindowFigure, by_metric: dict[str, WindowFigure]) -> Iterator[str]:
    """What exceeded a limit of the SLO: this instance alone, or the pool."""
    asked = (figure.metric,) if figure.metric in SLO_METRICS else SLO_METRICS
    judged = [one for name in asked if (one := by_metric[name]).limit is not None and one.maximum is not None]
    over = [one for one in judged if one.maximum is not None and one.limit is not None and one.maximum > one.limit]
    for one in over:
        assert one.limit is not None
        limit = f"the {SLO_METRICS[one.metric]} limit of {told(one.limit, one.unit)}"
        if not one.others_count:
            yield f"It was over {limit}."
        elif one.others_over * 2 >= one.others_count:
            who = "Both" if one.others_count == 1 else f"This one and {one.others_over} of the {one.others_count} others"
            yield f"{who} were over {limit}: the pool was short."
        elif one.others_over:
            yield f"It was over {limit}, and so {_were(one.others_over)} of the {one.others_count} others."
        else:
            yield f"It alone was over {limit}."
    if judged and not over:
        limits = " and ".join(SLO_METRICS[one.metric] for one in judged)
        yield f"It was within the {limits} {'limits' if len(judged) > 1 else 'limit'} anyway."


def _were(count: int) -> str:
    return "was 1" if count == 1 else f"were {count}"


def _since_before(figure: WindowFigure) -> Iterator[str]:
    value, before = figure.compared, figure.before
    if value is None or before is None:
        return
    if value > before * MUCH:
        yield f"It rose just then: {told(before, figure.unit)} in the stretch before, {told(value, figure.unit)} in this one."
    elif before > value * MUCH:
        yield f"It was on the way down: {told(before, figure.unit)} in the stretch before."


def few(top: list[SenderShare], share_of: Callable[[SenderShare], float | None]) -> tuple[int, float]:
    """The smallest number of top sessions that have FEW_SHARE of the tokens together, and their share; (0, 0.0) where
    those listed have less.
    """
    share = 0.0
    for number, one in enumerate((one for one in top if one.session is not None or one.is_unnamed), 1):
        share += share_of(one) or 0.0
        if share >= FEW_SHARE:
            return number, share
    return 0, 0.0


def _senders(found: LoadExplanation) -> Iterator[str]:
    """Compares tokens to prefill, which are what loads an instance, or prompt tokens if those are not recorded. Yields
    nothing if too little is recorded for a share.
    """
    senders, had_to_be_prefilled = found.senders, bool(found.senders.top_by_prefill)
    if had_to_be_prefilled:
        number, share = few(senders.top_by_prefill, lambda one: one.prefill_share)
    else:
        number, share = few(senders.top, lambda one: one.tokens_share)
    if senders.recorded < FEW_RECORDED or not number or number > max(1, senders.sessions_seen // 4):
        return
    what = "tokens that it had to prefill" if had_to_be_prefilled else "prompt tokens"
    if senders.is_exact:
        yield f"{number} of {senders.sessions_seen:,} sessions sent {share * 100:.0f} % of the {what}."
        return
    if senders.is_whole:
        of = f"{senders.recorded:,} of {senders.sent:,} requests, those that have ended"
        yield f"{number} of {senders.sessions_seen:,} sessions sent {share * 100:.0f} % of the {what} (of {of})."
        return
    of_all = "" if senders.sent is None else f" of {senders.sent:,}"
    known = f"estimated from {senders.recorded:,}{of_all} requests"
    yield f"{number} of {senders.sessions_seen:,} sessions sent about {share * 100:.0f} % of the {what} ({known})."


def _traffic(found: LoadExplanation, figures: dict[str, WindowFigure]) -> Iterator[str]:
    others = found.others_requests
    if others and found.requests > others * MUCH and found.requests >= FEW_RECORDED:
        yield f"It was sent {found.requests:,} requests, the median of the others {others:,.0f}."
    hits = figures["hit_rate"]
    if hits.mean is not None and hits.others is not None and hits.mean * MUCH < hits.others:
        yield f"Its cache helped little: a mean prefix hit rate of {hits.mean * 100:.0f} %, {hits.others * 100:.0f} % elsewhere."
    kv = figures["kv_usage"]
    if found.metric != "kv_usage" and kv.maximum is not None and kv.limit is not None and kv.maximum > kv.limit:
        yield f"Its KV cache was {kv.maximum * 100:.0f} % full, so the engine may have preempted requests."


def _moves(found: LoadExplanation) -> Iterator[str]:
    for moved, words, where in ((found.left, "left", "for"), (found.arrived, "came", "from")):
        if moved.total:
            least = "" if moved.complete else "at least "
            sessions = "session" if moved.total == 1 else "sessions"
            others = "one other" if moved.instances == 1 else f"{moved.instances} others"
            yield f"{least}{moved.total:,} {sessions} {words} {where} {others}.".capitalize()


def _changes(found: LoadExplanation) -> Iterator[str]:
    """What changed within the stretch, or so shortly before it that it may be the cause."""
    since = found.start - min(found.end - found.start, SHORTLY)
    for change in [one for one in found.changes if one.at >= since][-3:]:
        who = f" by {change.actor}" if change.actor else ""
        when = "before it" if change.at < found.start else "within it"
        yield f"At {change.at:%H:%M:%S} UTC, {when}: {change.words}{who}."


def told(value: float, unit: str) -> str:
    """A figure with its significant digits."""
    match unit:
        case "share":
            return f"{value * 100:.0f} %"
        case "seconds":
            whole = int(value * 1000 + 0.5)  # milliseconds first, as the heatmap rounds its numbers
            return (
                f"{whole} ms"
                if whole < 1000
                else f"{(whole + 5) // 10 / 100:.2f} s"
                if whole < 9995
                else f"{(whole + 50) // 100 / 10:.1f} s"
            )
        case "tokens":
            return f"{value:,.0f} tokens"
        case "requests/s":
            return f"{value:.1f} requests/s"
        case _:
            return f"{value:,.0f} {unit}"
