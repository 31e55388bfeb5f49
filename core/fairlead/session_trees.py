"""Session trees: the relations between the sessions of agents, and the cost of each of their tasks. Pure.

An agent's work is rarely one conversation: the agent asks sub-agents, forks a conversation, and compacts a conversation
that grew too long. A session's *parent* is the session from which it started; all sessions with one *root* are a tree.
A *task* is named by the client; without a name, the whole tree is one task. Clients send these facts (`Evidence.SENT`),
or prompts show them (`Evidence.PREFIX`): a session whose prompt continues the conversation of another session is its
fork, and a session whose prompt becomes much shorter after the same system text was compacted. Without any evidence, a
session is a root of its own.

Blocks are ids of 512 prompt tokens (`reports.traffic`): equal ids mean equal text up to and including that block.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple, Protocol

from fairlead.values import value

COMPACTED_SHARE = 0.5
"""Maximum size of a compacted prompt, as a share (0-1) of the tokens of the previous prompt."""


class Link(StrEnum):
    """The relation of a session to its parent."""

    SUB_AGENT = "sub-agent"
    """The parent's agent asked the agent of this session. The session's prompt does not begin with the parent's
    conversation.
    """
    FORK = "fork"
    """The session's first prompt continues the parent's conversation."""


class Evidence(StrEnum):
    """The source of a fact about a session's relations."""

    SENT = "sent"
    """The client sent the fact."""
    PREFIX = "prefix"
    """The prompts show the fact."""


class TaskVerdict(StrEnum):
    """The result of a task, judged by the target of its priority class."""

    OPEN = "open"
    """The task is not over, and in time so far."""
    IN_TIME = "in-time"
    LATE = "late"
    """The task took longer than its target; it may not be over yet."""
    BROKEN_OFF = "broken-off"
    """The task is over, and its last turn was refused or failed."""


@value
class Lineage:
    """A client's statements, in one request, about the relations of its session to other sessions; a field is None
    without a statement.

    `parent` is the name of the session from which this session started, `task` the client's name for the task. `tool`
    is the tool whose result is the newest part of the prompt: the session waited for that result since its last answer.
    `window` is the client's count of the compactions of the session's context.
    """

    parent: str | None = None
    task: str | None = None
    tool: str | None = None
    window: int | None = None


class Reach(NamedTuple):
    """The extent of a session's conversation: the number of blocks of its first and of its newest prompt, and the id of
    the newest prompt's last block. The id of that block identifies the whole prompt up to its end.
    """

    first_blocks: int
    last_blocks: int
    last_block: int | None

    @property
    def is_beyond_beginning(self) -> bool:
        """Return whether the last block comes after the session's first prompt and so contains a part of an answer. In
        this case another session has that block only if it continues this session.
        """
        return self.last_block is not None and self.last_blocks > self.first_blocks


def reach_after(reach: Reach, blocks: Sequence[int]) -> Reach:
    """Return the extent of the conversation after a turn with this prompt. A prompt that does not continue the previous
    prompt is a new beginning; a prompt of less than a block changes nothing.
    """
    if not blocks:
        return reach
    last = reach.last_blocks
    goes_on = reach.last_block is not None and len(blocks) >= last and blocks[last - 1] == reach.last_block
    return Reach(reach.first_blocks if goes_on else len(blocks), len(blocks), blocks[-1])


NOWHERE = Reach(0, 0, None)
"""The extent of a session without a known prompt."""


def goes_on_from(blocks: Sequence[int], reach: Reach) -> bool:
    """Return whether a prompt contains the whole conversation of another session, and not only the scaffold (such as a
    system text) that both begin with.
    """
    return reach.is_beyond_beginning and len(blocks) >= reach.last_blocks and blocks[reach.last_blocks - 1] == reach.last_block


class Prompted(Protocol):
    """The prompt of a turn."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def blocks(self) -> Sequence[int]: ...

    @property
    def window_number(self) -> int | None: ...


def may_be_compacted(before: Prompted, after: Prompted) -> bool:
    """Return whether a session's next prompt is much shorter than the previous prompt and begins with the same block.

    A request that does not belong to the conversation can look the same. A later prompt that continues the longer
    prompt then shows that the context was not compacted.
    """
    shorter = after.prompt_tokens <= COMPACTED_SHARE * before.prompt_tokens
    return shorter and bool(after.blocks) and bool(before.blocks) and after.blocks[0] == before.blocks[0]


def compactions(turns: Sequence[Prompted]) -> dict[int, Evidence]:
    """Return the turns that begin with a compacted context: their positions, each with the source of the evidence. The
    argument has one session's turns in order of arrival.

    If the client sends a count of compactions, the count decides. Otherwise a turn counts if it `may_be_compacted`,
    unless a later turn continues the prompt before it.
    """
    found: dict[int, Evidence] = {}
    suspects: dict[int, Prompted] = {}
    main: Prompted | None = None
    for place, turn in enumerate(turns):
        if main is None:
            main = turn
            continue
        if turn.window_number is not None and main.window_number is not None:
            if turn.window_number > main.window_number:
                found[place] = Evidence.SENT
        else:
            for suspect in [one for one, longer in suspects.items() if _continues(turn, longer)]:
                del suspects[suspect]
            if may_be_compacted(main, turn):
                suspects[place] = main
            elif turn.blocks and main.blocks and turn.blocks[0] != main.blocks[0]:
                continue  # beside the conversation, with another system text
        main = turn
    return dict(sorted({**found, **dict.fromkeys(suspects, Evidence.PREFIX)}.items()))


def _continues(turn: Prompted, longer: Prompted) -> bool:
    last = len(longer.blocks)
    return len(turn.blocks) >= last and turn.blocks[last - 1] == longer.blocks[-1]


class Span(Protocol):
    """The time of a turn, in Unix seconds."""

    @property
    def at(self) -> float:
        """The turn's arrival."""

    @property
    def ended_at(self) -> float:
        """The end of the turn's answer, or of the attempt."""


def gaps(turns: Sequence[Span]) -> list[float | None]:
    """Return, for each turn of one session in order of arrival, the seconds from the end of all earlier answers of the
    session until the turn's arrival. In this time the session's tools ran or its user thought. None for the first turn,
    and for a turn that arrived before an earlier answer had ended.
    """
    found: list[float | None] = []
    end: float | None = None
    for turn in turns:
        found.append(None if end is None or turn.at < end else turn.at - end)
        end = turn.ended_at if end is None else max(end, turn.ended_at)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The totals of some turns. Totals of two groups of turns may be added, in any order.

    The time in the model is from the sending of a request to its engine until its end, the time in queues is the time
    before; both are in whole microseconds, whose sums are exact. `cached_tokens` is the part of `prompt_tokens` that
    was not computed again; both count only turns that an engine received. `refusals` and `failures` are turns without
    an answer, for the reasons of `RequestOutcome`.
    """

    turns: int = 0
    refusals: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queued_microseconds: int = 0
    model_microseconds: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(**{name: getattr(self, name) + getattr(other, name) for name in FIGURE_NAMES})


FIGURE_NAMES = tuple(one.name for one in fields(Figures))


def microseconds(seconds: float) -> int:
    """Convert a duration in seconds to the whole microseconds of `Figures`."""
    return round(seconds * 1e6)


def total(parts: Iterable[Figures]) -> Figures:
    """Return the totals of several groups of turns together."""
    return sum(parts, Figures())


def root_of(session: str, parent: str, roots: Mapping[str, str]) -> str | None:
    """Return the root of a session with this parent, given the roots of the known sessions. A parent that is not known
    counts as a root. None if the result would be a cycle, which clients can cause by sending false parents; the parent
    is then ignored.
    """
    root = roots.get(parent, parent)
    return None if session in (parent, root) else root
