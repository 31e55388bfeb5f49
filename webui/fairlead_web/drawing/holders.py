"""The instances that held a session over time: a lane for each instance, and the same content in a sentence. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.amounts import amount
from fairlead_client.resources.sessions import BindingHistoryItem
from fairlead_web.drawing.charts import Bar, even_ticks
from fairlead_web.text import formats

LANES = 12
DRAWN = 300
"""Maximum number of instances, and of stays on an instance, that are drawn; the newest are drawn. The sentence counts
all instances and all stays.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLane:
    """A lane of the picture: when the instance `name` held the session's KV cache."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderBand:
    """A picture of the instances that held a session's KV cache: one lane for each instance, above a time axis. Lanes
    are ordered by the time at which their instance first held the session.

    `homes` is the number of drawn stays on an instance; if not all stays are drawn, the newest are.
    """

    width: int
    lanes: tuple[ChartLane, ...]
    ticks: tuple[str, ...]
    homes: int


def holder_band(history: Sequence[BindingHistoryItem], now: datetime, width: int = 1000) -> HolderBand:
    """Draw when instances held the session, from the first drawn binding to the last release, or to `now` if an
    instance still holds the session.
    """
    newest = sorted(history, key=lambda item: (item.bound_at, item.version), reverse=True)[:DRAWN]
    instances = list(dict.fromkeys(item.instance for item in newest))[: LANES + 1]
    cut = next((place for place, item in enumerate(newest) if item.instance in instances[LANES:]), len(newest))
    shown = newest[:cut]
    if not shown:
        return HolderBand(width=width, lanes=(), ticks=(), homes=0)
    start = min(item.bound_at for item in shown)
    end = max(max((item.released_at or now) for item in shown), start + timedelta(seconds=1))
    scale = width / (end - start).total_seconds()
    ever = list(dict.fromkeys(item.instance for item in sorted(history, key=lambda item: item.bound_at)))
    lanes: dict[str, list[Bar]] = {}
    for item in sorted(shown, key=lambda item: item.bound_at):
        bars = lanes.setdefault(item.instance, [])
        held = ((item.released_at or now) - item.bound_at).total_seconds()
        label = f"{item.instance}: {formats.span(held)}, {formats.words(item.reason)}"
        x, wide = (item.bound_at - start).total_seconds() * scale, max(3.0, held * scale)
        series = ever.index(item.instance) % 8  # its colour stays when older lanes are no longer drawn
        bars.append(Bar(x=round(min(x, width - 3.0), 1), y=0, width=round(wide, 1), height=16, series=series, label=label))
    found = tuple(ChartLane(name=name, bars=tuple(bars)) for name, bars in lanes.items())
    return HolderBand(width=width, lanes=found, ticks=even_ticks(start, end), homes=len(shown))


def holders_in_words(history: Sequence[BindingHistoryItem], ever: int, now: datetime) -> str:
    """Return a sentence about the instances that held a session: how many, which one the longest, why the session
    moved, and how long no instance held it. `ever` is the total number of the session's bindings.
    """
    if not history:
        return ""
    ordered = sorted(history, key=lambda item: (item.bound_at, item.version))
    held: dict[str, float] = {}
    idle, until = 0.0, ordered[0].bound_at
    for item in ordered:
        end = item.released_at or now
        held[item.instance] = held.get(item.instance, 0.0) + max(0.0, (end - item.bound_at).total_seconds())
        idle += max(0.0, (item.bound_at - until).total_seconds())
        until = max(until, end)
    whole = (until - ordered[0].bound_at).total_seconds()
    longest, seconds = max(held.items(), key=lambda item: item[1])
    told = [f"Its newest {len(ordered):,} of {ever:,} bindings are recorded."] if ever > len(ordered) else []
    if len(held) == 1:
        told += [f"{longest} alone held it, for {formats.span(seconds)}."]
    else:
        told += [
            f"{amount(len(held), 'instance')} held it within {formats.span(whole)}, {longest} the longest: {formats.span(seconds)} "
            f"({formats.share(seconds / max(whole, 1e-9))})."
        ]
    why = Counter(formats.words(item.reason) for item in ordered if item.migration is not None)
    if why:
        reasons = ", ".join(f"{words} {count}×" if len(why) > 1 or count > 1 else words for words, count in why.most_common())
        told.append(f"It moved {'once' if why.total() == 1 else amount(why.total(), 'time')}: {reasons}.")
    if idle >= 1:
        told.append(f"For {formats.span(idle)} in between no instance held it.")
    if ordered[-1].released_at is not None:
        told.append(f"No instance has held it since, for {formats.span((now - until).total_seconds())}.")
    return " ".join(told)
