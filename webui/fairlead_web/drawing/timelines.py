"""The turns of a session tree over time: a lane for each session, with colours for the instances that served the turns;
and the same content in a sentence. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.amounts import amount
from fairlead.reports.decisions import RequestOutcome
from fairlead_client.resources.trees import SessionTree, TreeTurn
from fairlead_web.drawing.charts import even_ticks
from fairlead_web.text import formats

LANES = 24
DRAWN = 250
"""Maximum number of sessions, and maximum number of turns, that are drawn. The newest turns are drawn. The tables list
more.
"""
WIDTH = 1000
_NARROWEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A rectangle in a lane; `kind` is its CSS class."""

    x: float
    y: int
    width: float
    height: int
    kind: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLane:
    """The lane of one session; `depth` counts the sessions above it in the tree."""

    session: str
    depth: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Lanes of sessions above a time axis. `holders` are the instances, in the order of their colour classes; `turns`
    is the number of turns that are drawn.
    """

    width: int
    lanes: tuple[TimelineLane, ...]
    ticks: tuple[str, ...]
    holders: tuple[tuple[str, str], ...]
    turns: int


def timeline(tree: SessionTree) -> Timeline:
    """Draw the newest turns of the first sessions of the tree."""
    named = {one.session: one for one in tree.sessions[:LANES]}
    drawn = [turn for turn in tree.turns if turn.session in named][-DRAWN:]
    if not drawn:
        return Timeline(width=WIDTH, lanes=(), ticks=(), holders=(), turns=0)
    start, end = min(turn.at for turn in drawn), max(turn.ended_at for turn in drawn)
    end = max(end, start + timedelta(seconds=1))
    instances = list(dict.fromkeys(turn.instance for turn in tree.turns if turn.instance is not None))
    classes = {name: f"series-{place % 8}" for place, name in enumerate(instances)}
    marks: dict[str, list[Mark]] = {name: [] for name in named}
    for turn in drawn:
        marks[turn.session] += _marks(turn, start, WIDTH / (end - start).total_seconds(), classes)
    lanes = tuple(TimelineLane(session=name, depth=one.depth, marks=tuple(marks[name])) for name, one in named.items() if marks[name])
    shown = tuple((name, classes[name]) for name in instances[:8])
    return Timeline(width=WIDTH, lanes=lanes, ticks=even_ticks(start, end), holders=shown, turns=len(drawn))


def _marks(turn: TreeTurn, start: datetime, scale: float, classes: dict[str, str]) -> list[Mark]:
    """Return the marks of a turn: a low rectangle until the turn's first token, and a high one after it. Refused turns,
    failed turns and moves have differently shaped marks.
    """
    label = turn_in_words(turn)
    begun, ended = (turn.at - start).total_seconds(), (turn.ended_at - start).total_seconds()
    if turn.instance is None or turn.outcome in (RequestOutcome.REFUSED, RequestOutcome.FAILED):
        return [_mark(begun, ended, scale, 2, 12, "turn-refused", label)]
    first = ended if turn.ttft_seconds is None else min(ended, begun + (turn.queued_seconds or 0.0) + turn.ttft_seconds)
    kind = classes[turn.instance]
    found = [_mark(begun, first, scale, 5, 6, kind, label)]
    if first < ended:
        found.append(_mark(first, ended, scale, 0, 16, kind, label))
    if turn.moved_from is not None:
        found.append(_mark(begun, begun, scale, 0, 16, "turn-moved", f"moved from {turn.moved_from} to {turn.instance}"))
    return found


def _mark(begun: float, ended: float, scale: float, y: int, height: int, kind: str, label: str) -> Mark:
    width = max(_NARROWEST, (ended - begun) * scale)
    return Mark(x=round(min(begun * scale, WIDTH - _NARROWEST), 1), y=y, width=round(width, 1), height=height, kind=kind, label=label)


def turn_in_words(turn: TreeTurn) -> str:
    """Describe a turn for the tooltip of its mark."""
    told = [f"{formats.clock(turn.at)} UTC"]
    if turn.tool is not None:
        told.append(f"after {turn.tool}")
    if turn.rejection is not None:
        told.append(f"refused: {formats.words(turn.rejection)}")
    elif turn.outcome is not None and turn.outcome is not RequestOutcome.SERVED:
        told.append(formats.words(turn.outcome))
    if turn.instance is not None:
        told.append(f"{turn.instance}, first token after {formats.latency(turn.ttft_seconds)}")
        told.append(f"{formats.share(hit_share(turn))} of the prompt cached")
    return ", ".join(told)


def hit_share(turn: TreeTurn) -> float | None:
    """Return the cached share of the turn's prompt; None if it was not reported."""
    if turn.cached_tokens is None or not turn.prompt_tokens:
        return None
    return min(1.0, turn.cached_tokens / turn.prompt_tokens)


def tree_in_words(tree: SessionTree) -> str:
    """Return a sentence about the tree: the number of sessions and turns, how long they took, and how much of that time
    was spent in the model.
    """
    turns = sum(one.turns for one in tree.sessions)
    if not tree.sessions or not turns:
        return ""
    wall = (max(one.ended_at for one in tree.sessions) - min(one.first_at for one in tree.sessions)).total_seconds()
    model = sum(one.model_seconds for one in tree.sessions)
    sessions = "One session" if len(tree.sessions) == 1 else amount(len(tree.sessions), "session")
    told = f"{sessions} had {amount(turns, 'turn')} within {formats.span(wall)}; engines worked {formats.span(model)} for them."
    waits = _longest(tree.turns)
    return told if waits is None else f"{told} The longest wait between two turns of a session was {formats.span(waits)}."


def _longest(turns: Sequence[TreeTurn]) -> float | None:
    return max((turn.gap_seconds for turn in turns if turn.gap_seconds is not None), default=None)
