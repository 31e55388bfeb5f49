"""Prepares the rows of a session tree for responses: the tree's sessions in order, their turns with gaps and
compactions, and think times. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from fairlead.session_trees import Evidence, compactions, gaps

MOST_DEPTH = 64
"""Maximum depth of sessions that is shown in a tree."""
MOST_TIMES = 100
"""Maximum number of rows of think times. For each tenant, the tools with the fewest turns are combined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """A recorded request of a session, with times in Unix seconds."""

    session: str
    at: float
    ended_at: float
    prompt_tokens: int
    blocks: Sequence[int]
    window_number: int | None
    instance: str | None
    tool: str | None
    task: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """Facts about a turn that follow from the earlier turns of its session: the gap before it, evidence that the
    conversation was compacted, and the instance from which the session moved; each None if it does not apply.
    """

    gap_seconds: float | None
    compacted: Evidence | None
    moved_from: str | None


def told(turns: Sequence[StoredTurn]) -> list[Told]:
    """Return, for each turn of one session, the facts that follow from the earlier turns. `turns` are in order of
    arrival.
    """
    compacted = compactions(turns)
    moved = [None, *(_left(before, after) for before, after in pairwise(turns))]
    return [Told(gap, compacted.get(place), left) for place, (gap, left) in enumerate(zip(gaps(turns), moved, strict=False))]


def _left(before: StoredTurn, after: StoredTurn) -> str | None:
    both = before.instance is not None and after.instance is not None
    return before.instance if both and before.instance != after.instance else None


def tool_seconds(found: Iterable[Told]) -> float:
    """Return the total of the gaps between turns in seconds."""
    return sum(one.gap_seconds or 0.0 for one in found)


def in_order(parents: Mapping[str, str | None]) -> list[tuple[str, int]]:
    """Return the sessions of a tree with their depths, each after its parent. Siblings keep the order of `parents`. A
    session whose parent is missing in `parents` is a root.
    """
    children: dict[str | None, list[str]] = {}
    for session, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(session)
    ordered: list[tuple[str, int]] = []
    waiting = [(session, 0) for session in reversed(children.get(None, []))]
    while waiting:
        session, depth = waiting.pop()
        ordered.append((session, depth))
        waiting += [(child, min(depth + 1, MOST_DEPTH)) for child in reversed(children.get(session, []))]
    return ordered


@dataclass(frozen=True, slots=True)
class Waited:
    """The gap in seconds before a turn, with the turn's tenant and tool."""

    tenant: str
    tool: str
    seconds: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of gaps of one tenant and tool. Quantiles are nearest-rank."""

    tenant: str
    tool: str
    turns: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    first_at: datetime
    last_at: datetime
    other_tools: int = 0


def waited(rows: Iterable[Any]) -> list[Waited]:
    """Return the gaps between turns. The rows must have `session`, `at`, `ended_seconds`, `tenant` and `tool`, in order
    of arrival.
    """
    ends: dict[int, datetime] = {}
    found: list[Waited] = []
    for row in rows:
        end = ends.get(row.session)
        if end is not None and row.at >= end:
            found.append(Waited(row.tenant or "", row.tool or "", (row.at - end).total_seconds(), row.at))
        ended = row.at + timedelta(seconds=row.ended_seconds or 0.0)
        ends[row.session] = ended if end is None else max(end, ended)
    return found


def spreads(found: Iterable[Waited]) -> list[Spread]:
    """Return the distributions of gaps, one for each tenant and tool, ordered by the number of turns, the largest
    number first. At most MOST_TIMES are returned. All further tools of a tenant are combined in one further
    distribution.
    """
    by_place: dict[tuple[str, str], list[Waited]] = {}
    for one in found:
        by_place.setdefault((one.tenant, one.tool), []).append(one)
    ranked = sorted(by_place.values(), key=lambda ones: (-len(ones), ones[0].tenant, ones[0].tool))
    rest: dict[str, list[list[Waited]]] = {}
    for ones in ranked[MOST_TIMES:]:
        rest.setdefault(ones[0].tenant, []).append(ones)
    others = [_spread([one for ones in groups for one in ones], "", len(groups)) for groups in list(rest.values())[:MOST_TIMES]]
    return [*(_spread(ones, ones[0].tool, 0) for ones in ranked[:MOST_TIMES]), *others]


def _spread(ones: Sequence[Waited], tool: str, others: int) -> Spread:
    seconds = sorted(one.seconds for one in ones)
    p50, p90, p99 = (seconds[max(0, -(-len(seconds) * percent // 100) - 1)] for percent in (50, 90, 99))
    return Spread(
        tenant=ones[0].tenant,
        tool=tool,
        turns=len(ones),
        p50_seconds=p50,
        p90_seconds=p90,
        p99_seconds=p99,
        first_at=min(one.at for one in ones),
        last_at=max(one.at for one in ones),
        other_tools=others,
    )
