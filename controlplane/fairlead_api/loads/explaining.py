"""Use case: explains the load of an instance in a range of time.

The explanation's sentences name unusual values. Every number in them is also a field of the explanation. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from statistics import median
from typing import Protocol

from fairlead.advice.wording import rate
from fairlead.errors import InvalidInput
from fairlead.percentages import percentage
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.times import parse_range
from fairlead_api.loads.heatmaps import Grid, Kept, Limits, Place
from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH, METRICS
from fairlead_client.resources.load_explanations import LoadExplanation, Moved, Senders, SenderShare, WindowChange, WindowFigure

LONGEST = timedelta(days=1)
TELLING = timedelta(minutes=5)
"""Minimum length of the time in which the sessions that sent requests to an instance are looked for. If the explained
range is shorter, it has too few recorded requests, so the five minutes before its end are searched instead.
"""
SHARED = 240
"""The figures of all instances of a pool are read at once, and reused for requests about any of the instances. They are
reused for the length of the range divided by SHARED: 15 s for a range of an hour. Little changes in that time, and an
open page requests them repeatedly.
"""
MOST_SHARED = 64
LONG, ENDED = timedelta(minutes=30), timedelta(seconds=2)
"""Conditions under which a response may have the figures that were read last: the requested range has at least the
length LONG and ends at most ENDED before now. The response names the range to which its figures belong, and newer
figures are read in the background.
"""
BEFORE_CHANGE = timedelta(minutes=10)
"""Maximum time between a change and the beginning of the range. Older changes are not read as possible causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """An instance's figures in a range of time. `values` has the maximum and the mean of each measured metric. The
    other fields count requests and their tokens.
    """

    values: Mapping[str, tuple[float, float]]
    requests: int
    prompt_tokens: int
    hit_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """The figures of all instances of a pool in a range of time (`now`) and in the range of equal length before it
    (`before`), the instances' states, roles and nodes (`places`), and the current limits.
    """

    now: Mapping[str, Stretch]
    before: Mapping[str, Stretch]
    places: Mapping[str, Place]
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Facts, other than load, about an instance in a range of time."""

    senders: Senders
    arrived: Moved
    left: Moved
    changes: list[WindowChange]


class LoadWindows(Protocol):
    """Reads what an explanation needs in a range of time: the load of instances, the sessions that sent requests, the
    moves of sessions, and the changes of the pool.
    """

    async def stretches(self, pool: PoolKey, where: Grid) -> Stretches:
        """Return the load of all instances in a range of time and in the range before it. Raises NotFound for a pool
        that does not exist.
        """

    async def evidence(
        self, pool: PoolKey, instance: str, start: datetime, end: datetime, senders_from: datetime, changes_from: datetime
    ) -> Evidence:
        """Return the facts about the instance until `end`: the sessions that sent requests to it from `senders_from`
        on, the sessions that arrived and left from `start` on, and the changes from `changes_from` on.
        """


class LoadExplaining:
    """Reads an instance's figures in a range of time, compares them with the figures of the other instances, and
    describes unusual values.
    """

    def __init__(self, store: LoadWindows, kept: Kept, recent: Recent) -> None:
        self._store = store
        self._kept = kept
        self._recent = recent
        self._shared: dict[tuple[PoolKey, datetime, int], tuple[datetime, Stretches]] = {}

    async def explain(
        self, pool: PoolKey, instance: str, metric: str, start: str, end: str, now: datetime, limit: float | None = None
    ) -> LoadExplanation:
        """Return the explanation of the instance's load. `limit` is the metric's limit on the heatmap that the reader
        sees; without it, the present limit is used. Raises InvalidInput, which names the query parameter; NotFound.
        """
        if metric not in METRICS:
            raise InvalidInput("metric", metric, f"write one of {', '.join(METRICS)}")
        if limit is not None and not 0 < limit < inf:
            raise InvalidInput("limit", limit, "write a number above 0")
        begun, ended = parse_range(start, end, now)
        begun, ended = begun or now, ended or now
        where = two_windows(begun, ended, start, self._kept.finest(begun - (ended - begun), now))
        where, found = await self._stretches(pool, instance, where, now)
        middle = where.start + timedelta(seconds=where.step)
        if instance not in found.places:
            raise NotFound("instance", instance)
        known = await self._store.evidence(pool, instance, middle, where.end, min(middle, where.end - TELLING), middle - BEFORE_CHANGE)
        seen = found if limit is None else replace(found, limits=replace(found.limits, shown=(metric, limit)))
        return explanation(pool, instance, metric, where, seen, known)

    async def _stretches(self, pool: PoolKey, instance: str, where: Grid, now: datetime) -> tuple[Grid, Stretches]:
        """Return the figures of all instances in a range of time, and the time grid to which they belong."""

        async def read() -> tuple[Grid, Stretches]:
            return where, await self._store.stretches(pool, where)

        if where.step >= LONG.total_seconds() and where.end > now - ENDED:
            latest = await self._recent.get(("stretches", pool, where.step), read)
            return latest if instance in latest[1].places else await read()
        key, fresh = (pool, where.start, where.step), timedelta(seconds=where.step / SHARED)
        known = self._shared.get(key)
        if known is not None and timedelta() <= now - known[0] < fresh and instance in known[1].places:
            return where, known[1]
        found = await self._store.stretches(pool, where)
        if len(self._shared) >= MOST_SHARED:
            self._shared.pop(min(self._shared, key=lambda one: self._shared[one][0]))
        self._shared[key] = (now, found)
        return where, found


def two_windows(start: datetime, end: datetime, written: str, finest: int = 1) -> Grid:
    """Return the range [start, end) and the range of equal length before it, as a grid of two columns. Both ranges are
    widened to whole samples of the grid's table.

    The table is the coarsest that suffices for columns of this length. Tables with samples shorter than `finest`
    seconds are not used, because retention has deleted their samples of this time. Raises InvalidInput, which names the
    query parameter `from`.
    """
    if end - start > LONGEST:
        raise InvalidInput("from", written, "write a stretch of at most a day")
    for unit, below in ((1, 10), (10, 60)):
        found = _widened(start, end, unit)
        if unit >= finest and found.step < below:
            return found
    return _widened(start, end, 60)


def _widened(start: datetime, end: datetime, unit: int) -> Grid:
    first = int(start.timestamp()) // unit * unit
    last = max(-(-int(end.timestamp()) // unit) * unit, first + unit)
    return Grid(start=datetime.fromtimestamp(first - (last - first), UTC), step=last - first, columns=2)


def explanation(pool: PoolKey, instance: str, metric: str, where: Grid, found: Stretches, known: Evidence) -> LoadExplanation:
    """Build the explanation from the figures `found` and the facts `known`. Pure."""
    place = found.places[instance]
    others = [name for name, other in found.places.items() if name != instance and other.role is place.role]
    mine = found.now.get(instance)
    figures = [_figure(one, instance, others, found) for one in METRICS]
    counts = [found.now[name].requests for name in others if name in found.now]
    made = LoadExplanation(
        pool=str(pool),
        instance=instance,
        state=place.state,
        role=place.role,
        start=where.start + timedelta(seconds=where.step),
        end=where.end,
        metric=metric,
        causes=[],
        figures=figures,
        requests=mine.requests if mine else 0,
        prompt_tokens=mine.prompt_tokens if mine else 0,
        hit_tokens=mine.hit_tokens if mine else 0,
        output_tokens=mine.output_tokens if mine else 0,
        others_requests=float(median(counts)) if counts else None,
        senders=known.senders,
        arrived=known.arrived,
        left=known.left,
        changes=known.changes,
    )
    made.causes.extend(causes(made))
    return made


def _figure(metric: str, instance: str, others: Sequence[str], found: Stretches) -> WindowFigure:
    now, before = (_value(stretches.get(instance), metric) for stretches in (found.now, found.before))
    of = 1 if metric in GOOD_WHEN_HIGH else 0
    values = [value[of] for name in others if (value := _value(found.now.get(name), metric)) is not None]
    limit = found.limits.of(metric)
    return WindowFigure(
        metric=metric,
        unit=METRICS[metric],
        maximum=now[0] if now else None,
        mean=now[1] if now else None,
        before=before[of] if before else None,
        others=float(median(values)) if values else None,
        others_count=len(values),
        others_over=0 if limit is None else sum(value > limit for value in values),
        limit=limit,
    )


def _value(stretch: Stretch | None, metric: str) -> tuple[float, float] | None:
    return None if stretch is None else stretch.values.get(metric)


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
"""Factor by which an instance's figure must differ from the other instances' figure, or from its own earlier figure, to
count as unusual.
"""
FEW_SHARE = 0.5
"""Minimum share of the tokens that a small group of sessions must have to be named in an explanation."""
FEW_RECORDED = 5
"""Minimum number of recorded requests from which shares of senders and hit rates are reported. Below it, they are left
out even if no request is missing from the record.
"""
SLO_METRICS = {"ttft_p95": "TTFT", "tpot_p95": "TPOT"}
"""The metrics that the SLO limits, each with the SLO's name for it. These metrics show whether an instance or the whole
pool has too little capacity.
"""
SHORTLY = timedelta(minutes=1)
"""Maximum time from a change to the beginning of the explained range for which the change is named as a possible cause.
If the range is shorter than this time, the range's length is the limit instead.
"""


def causes(found: LoadExplanation) -> list[str]:
    """Return sentences about possible causes, the most important cause first; empty if nothing is unusual."""
    by_metric = {figure.metric: figure for figure in found.figures}
    figure = by_metric[found.metric]
    made = [*_beside_others(figure, by_metric), *_since_before(figure), *_senders(found), *_traffic(found, by_metric), *_moves(found)]
    return [*made, *_changes(found)]


def _beside_others(figure: WindowFigure, by_metric: dict[str, WindowFigure]) -> Iterator[str]:
    """Yield a sentence that compares the instance's figure with the median of the other instances, and sentences about
    exceeded SLO limits. Yields nothing if either figure is unknown.
    """
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
        yield f"Other instances had more: {words} reached {here} here; {median} had {there}."
    else:
        yield f"It was like the others: {words} reached {here}; {median} had {there}."
    yield from _short(figure, by_metric)


def _short(figure: WindowFigure, by_metric: dict[str, WindowFigure]) -> Iterator[str]:
    """Yield sentences about SLO limits: one for each limit that this instance alone or the whole pool exceeded;
    otherwise one sentence that no limit was exceeded.
    """
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
            yield f"It was over {limit}, and so {_were(one.others_over)} of the {one.others_count} other instances."
        else:
            yield f"It alone was over {limit}."
    if judged and not over:
        limits = " and ".join(SLO_METRICS[one.metric] for one in judged)
        yield f"In this time it stayed within the {limits} {'limits' if len(judged) > 1 else 'limit'}."


def _were(count: int) -> str:
    return "was 1" if count == 1 else f"were {count}"


def _since_before(figure: WindowFigure) -> Iterator[str]:
    value, before = figure.compared, figure.before
    if value is None or before is None:
        return
    if value > before * MUCH:
        yield f"It rose: {told(before, figure.unit)} in the time before, of equal length, {told(value, figure.unit)} in this time."
    elif before > value * MUCH:
        yield f"It fell: {told(before, figure.unit)} in the time before, of equal length."


def few(top: list[SenderShare], share_of: Callable[[SenderShare], float | None]) -> tuple[int, float]:
    """Return the smallest number of top sessions that together have at least FEW_SHARE of the tokens, and the share
    (0-1) of the tokens that these sessions have. (0, 0.0) if all listed sessions together have less than FEW_SHARE.
    """
    share = 0.0
    for number, one in enumerate((one for one in top if one.session is not None or one.is_unnamed), 1):
        share += share_of(one) or 0.0
        if share >= FEW_SHARE:
            return number, share
    return 0, 0.0


def _senders(found: LoadExplanation) -> Iterator[str]:
    """Yield sentences about the sessions that sent the most. They compare the tokens to prefill, which cause an
    instance's load, or all prompt tokens if the tokens to prefill are not recorded. Yields nothing if too little is
    recorded for a share.
    """
    senders, had_to_be_prefilled = found.senders, bool(found.senders.top_by_prefill)
    if had_to_be_prefilled:
        number, share = few(senders.top_by_prefill, lambda one: one.prefill_share)
    else:
        number, share = few(senders.top, lambda one: one.tokens_share)
    if senders.recorded < FEW_RECORDED or not number or number > max(1, senders.sessions_seen // 4):
        return
    what = "tokens that the instance had to prefill" if had_to_be_prefilled else "prompt tokens"
    if senders.is_exact:
        yield f"{number} of {senders.sessions_seen:,} sessions sent {percentage(share)} of the {what}."
        return
    if senders.is_whole:
        of = f"{senders.recorded:,} of {senders.sent:,} requests, those that have ended"
        yield f"{number} of {senders.sessions_seen:,} sessions sent {percentage(share)} of the {what} (of {of})."
        return
    of_all = "" if senders.sent is None else f" of {senders.sent:,}"
    known = f"estimated from {senders.recorded:,}{of_all} requests"
    yield f"{number} of {senders.sessions_seen:,} sessions sent about {percentage(share)} of the {what} ({known})."


def _traffic(found: LoadExplanation, figures: dict[str, WindowFigure]) -> Iterator[str]:
    others = found.others_requests
    if others and found.requests > others * MUCH and found.requests >= FEW_RECORDED:
        yield f"It was sent {found.requests:,} requests; the median of the other instances is {others:,.0f}."
    hits = figures["hit_rate"]
    enough = found.requests >= FEW_RECORDED  # one miss is no hit rate of an instance
    if enough and hits.mean is not None and hits.others is not None and hits.mean * MUCH < hits.others:
        yield f"Its cache helped little: a mean prefix hit rate of {percentage(hits.mean)}, {percentage(hits.others)} elsewhere."
    kv = figures["kv_usage"]
    if found.metric != "kv_usage" and kv.maximum is not None and kv.limit is not None and kv.maximum > kv.limit:
        yield f"Its KV cache was {percentage(kv.maximum)} full, so the engine may have preempted requests."


def _moves(found: LoadExplanation) -> Iterator[str]:
    for moved, words, where in ((found.left, "left", "for"), (found.arrived, "came", "from")):
        if moved.total:
            least = "" if moved.complete else "at least "
            sessions = "session" if moved.total == 1 else "sessions"
            others = "one other" if moved.instances == 1 else f"{moved.instances} others"
            yield f"{least}{moved.total:,} {sessions} {words} {where} {others}.".capitalize()


def _changes(found: LoadExplanation) -> Iterator[str]:
    """Yield sentences about changes within the range of time, or so shortly before it that they may be the cause."""
    since = found.start - min(found.end - found.start, SHORTLY)
    for change in [one for one in found.changes if one.at >= since][-3:]:
        who = f" by {change.actor}" if change.actor else ""
        when = "before it" if change.at < found.start else "within it"
        yield f"At {change.at:%H:%M:%S} UTC, {when}: {change.words}{who}."


def told(value: float, unit: str) -> str:
    """Format a figure with its significant digits and unit."""
    match unit:
        case "share":
            return percentage(value)
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
            return rate(value)
        case _:
            return f"{value:,.0f} {unit}"
