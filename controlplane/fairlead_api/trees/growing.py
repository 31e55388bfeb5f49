"""Computes how the requests in a report change session trees and the sums over sessions' turns. Pure: its functions get
the stored rows, and return the changed rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.traffic import RecordedRequest
from fairlead.session_identities import tenant_of
from fairlead.session_trees import NOWHERE, Evidence, Figures, Link, Reach, goes_on_from, microseconds, reach_after, root_of
from fairlead.tables import DEFAULT_CLASS

Key = tuple[int, str]
"""A pool's id and a session's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A session's position in its tree, and how far its conversation extends. `root` is the name of the tree's first
    session; without a parent, it is the session's own name.
    """

    session: str
    number: int
    root: str
    first_at: float
    last_at: float
    parent: str | None = None
    link: Link | None = None
    evidence: Evidence | None = None
    reach: Reach = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over the turns of a session for one task: the time at which the first turn arrived, the time at which the
    last turn ended, and the turns' figures.

    `priority_class` is the class of the turn that arrived first. If several turns arrived first, it is the first of
    their classes by name. `answered` is False if the turn that ended last was refused or failed. If several turns ended
    last, one refused or failed turn among them is enough.
    """

    first_at: float
    ended_at: float
    figures: Figures
    priority_class: str = DEFAULT_CLASS
    answered: bool = True

    def __add__(self, other: "Sums") -> "Sums":
        first, last = min(self.first_at, other.first_at), max(self.ended_at, other.ended_at)
        both = (self, other)
        return Sums(
            first_at=first,
            ended_at=last,
            figures=self.figures + other.figures,
            priority_class=min(one.priority_class for one in both if one.first_at == first),
            answered=all(one.answered for one in both if one.ended_at == last),
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """The changes that the requests of one pool cause. `sessions` has the new positions of sessions in their trees,
    `sums` the amounts to add by session and task. `joined` has new roots: for each session that got a parent, and for
    each session below it.
    """

    sessions: Mapping[str, Grown]
    sums: Mapping[tuple[str, str], Sums]
    joined: Mapping[str, str]


def figures_of(turn: RecordedRequest) -> Figures:
    """Return the figures that one request adds to the sums of its session. Prompt tokens count only if the request
    reached an engine.
    """
    ended = turn.ended_seconds or 0.0
    sent = ended if turn.sent_seconds is None else min(turn.sent_seconds, ended)
    prompt = 0 if turn.instance is None else turn.prompt_tokens if turn.engine_prompt_tokens is None else turn.engine_prompt_tokens
    return Figures(
        turns=1,
        refusals=int(turn.outcome is RequestOutcome.REFUSED),
        failures=int(turn.outcome is RequestOutcome.FAILED),
        prompt_tokens=prompt,
        cached_tokens=min(prompt, turn.cached_tokens or 0),
        output_tokens=turn.output_tokens or 0,
        queued_microseconds=microseconds(sent),
        model_microseconds=microseconds(ended - sent),
    )


def sums_of(turn: RecordedRequest) -> Sums:
    """Return the sums over one request alone."""
    return Sums(
        first_at=turn.at,
        ended_at=turn.at + (turn.ended_seconds or 0.0),
        figures=figures_of(turn),
        priority_class=turn.priority_class or DEFAULT_CLASS,
        answered=turn.outcome not in (RequestOutcome.REFUSED, RequestOutcome.FAILED),
    )


def wants_place(turn: RecordedRequest, known: Grown | None) -> bool:
    """Return whether this request may determine the session's position in a tree: the session is new, or it has no
    parent and the client names one with this request.
    """
    return known is None or (known.parent is None and turn.parent is not None)


def grown(turns: Iterable[RecordedRequest], known: Mapping[str, Grown], forked: Mapping[int, Sequence[Grown]]) -> Growth:
    """Return the changes by the requests of one pool; each request must have a session's name. `known` holds the stored
    sessions of these requests and their parents. `forked` holds, by the id of a block, the sessions whose conversation
    ends with that block.
    """
    growing = _Growing(known, forked)
    for turn in sorted(turns, key=lambda one: one.at):
        growing.add(turn)
    return growing.result()


class _Growing:
    """The session trees and sums while requests are added in the order of their arrival."""

    def __init__(self, known: Mapping[str, Grown], forked: Mapping[int, Sequence[Grown]]) -> None:
        self._sessions = dict(known)
        self._forked = forked
        self._ends: dict[tuple[str, int], Grown] = {}
        """Sessions whose conversation these requests extended beyond its first turn: by tenant, and by the block with
        which the conversation now ends.
        """
        self._roots = {name: one.root for name, one in known.items()}
        self._members: dict[str, list[str]] = {}
        for name, root in self._roots.items():
            self._members.setdefault(root, []).append(name)
        self._touched: dict[str, None] = {}
        self._joined: dict[str, None] = {}
        self._sums: dict[tuple[str, str], Sums] = {}

    def add(self, turn: RecordedRequest) -> None:
        name, place, sums = turn.name or "", (turn.name or "", turn.task or ""), sums_of(turn)
        before = self._sessions.get(name)
        one = _seen(turn, before)
        if before is None:
            self._roots[name] = name
            self._members.setdefault(name, []).append(name)
        if wants_place(turn, before):
            one = self._placed(one, turn, is_new=before is None)
        self._sessions[name] = one
        self._touched[name] = None
        self._sums[place] = self._sums[place] + sums if place in self._sums else sums
        if one.reach.is_beyond_beginning and one.reach.last_block is not None:
            self._ends[tenant_of(name), one.reach.last_block] = one

    def result(self) -> Growth:
        sessions = {name: replace(self._sessions[name], root=self._roots[name]) for name in self._touched}
        return Growth(sessions=sessions, sums=self._sums, joined={name: self._roots[name] for name in self._joined})

    def _placed(self, one: Grown, turn: RecordedRequest, *, is_new: bool) -> Grown:
        found = self._told(turn) if turn.parent is not None else self._forked_from(turn) if is_new else None
        root = None if found is None else root_of(one.session, found.parent, self._roots)
        if found is None or root is None:
            return one
        for member in self._members.pop(one.session, ()):
            self._roots[member] = root
            self._members.setdefault(root, []).append(member)
        self._joined[one.session] = None
        return replace(one, parent=found.parent, link=found.link, evidence=found.evidence)

    def _told(self, turn: RecordedRequest) -> "_Parent":
        parent = turn.parent or ""
        told = self._sessions.get(parent)
        forks = told is not None and goes_on_from(turn.blocks, told.reach)
        return _Parent(parent=parent, link=Link.FORK if forks else Link.SUB_AGENT, evidence=Evidence.SENT)

    def _forked_from(self, turn: RecordedRequest) -> "_Parent | None":
        """Return the parent from which the turn's conversation was forked: the session of the same tenant whose
        conversation is the longest beginning of the turn's prompt. None if there is no such session.
        """
        tenant = tenant_of(turn.name or "")
        for block in reversed(turn.blocks):
            near = (self._ends[tenant, block],) if (tenant, block) in self._ends else ()
            for other in (*near, *(one for one in self._forked.get(block, ()) if tenant_of(one.session) == tenant)):
                if other.session != turn.name and goes_on_from(turn.blocks, other.reach):
                    return _Parent(parent=other.session, link=Link.FORK, evidence=Evidence.PREFIX)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parent:
    parent: str
    link: Link
    evidence: Evidence


def _seen(turn: RecordedRequest, before: Grown | None) -> Grown:
    name = turn.name or ""
    if before is None:
        reach = reach_after(NOWHERE, turn.blocks)
        return Grown(session=name, number=turn.session or 0, root=name, first_at=turn.at, last_at=turn.at, reach=reach)
    newest = turn.at >= before.last_at
    return replace(
        before,
        first_at=min(before.first_at, turn.at),
        last_at=max(before.last_at, turn.at),
        reach=reach_after(before.reach, turn.blocks) if newest else before.reach,
    )
