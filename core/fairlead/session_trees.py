"""Session trees: how the sessions of agents belong together, and what a task of theirs cost. Pure.

An agent's work is rarely one conversation: it asks sub-agents, forks a conversation, and compacts one that grew too
long. A session's *parent* is the session that it came from; all sessions with one *root* are a tree. A *task* is what
its client calls one, or else the whole tree. Clients say these things (`Evidence.SENT`), or prompts show them
(`Evidence.PREFIX`): a session whose prompt goes on from what another one said is its fork, and a session whose prompt
becomes much shorter behind the same system text was compacted. Where nothing shows it, a session is a root of its own.

Blocks are ids of 512 prompt tokens (`reports.traffic`): equal ids mean equal text up to and including that block.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple, Protocol

from fairlead.values import value

COMPACTED_SHARE = 0.5
"""A compacted prompt has at most this share of the tokens of the prompt before it."""


class Link(StrEnum):
    """How a session belongs to its parent."""

    SUB_AGENT = "sub-agent"
    """The parent asked it; its prompt begins in its own way."""
    FORK = "fork"
    """Its first prompt goes on from the parent's conversation."""


class Evidence(StrEnum):
    """How something is known."""

    SENT = "sent"
    """The client said it."""
    PREFIX = "prefix"
    """The prompts show it."""


class TaskVerdict(StrEnum):
    """How a task did by the target of its class."""

    OPEN = "open"
    """It is not over, and in time so far."""
    IN_TIME = "in-time"
    LATE = "late"
    """It took longer than its target, though it may go on."""
    BROKEN_OFF = "broken-off"
    """It is over, and its last turn was refused or failed."""


@value
class Lineage:
    """What a client says with one request about its session's place; None where it says nothing.

    `parent` is the name of the session that this one came from, `task` what its client calls the task. `tool` is the
    tool whose result is the newest part of the prompt: the session waited for it since its last answer. `window` counts
    the compactions of the session's context, as its client does.
    """

    parent: str | None = None
    task: str | None = None
    tool: str | None = None
    window: int | None = None


class Reach(NamedTuple):
    """How far a session's conversation reaches: the number of blocks of its first and of its newest prompt, and the id
    of the last block of the newest one. That block stands for the whole prompt up to it.
    """

    first_blocks: int
    last_blocks: int
    last_block: int | None

    @property
    def is_beyond_beginning(self) -> bool:
        """Whether the last block has a part of an answer: it lies behind what the session began with, so that no
        other session has it but by going on from this one.
        """
        return self.last_block is not None and self.last_blocks > self.first_blocks


def reach_after(reach: Reach, blocks: Sequence[int]) -> Reach:
    """How far the conversation reaches after a turn with this prompt. A prompt that does not go on from the last one
    is a new beginning; one of less than a block changes nothing.
    """
    if not blocks:
        return reach
    last = reach.last_blocks
    goes_on = reach.last_block is not None and len(blocks) >= last and blocks[last - 1] == reach.last_block
    return Reach(reach.first_blocks if goes_on else len(blocks), len(blocks), blocks[-1])


NOWHERE = Reach(0, 0, None)
"""The reach of a session of which no prompt is known."""


def goes_on_from(blocks: Sequence[int], reach: Reach) -> bool:
    """Whether a prompt has the whole conversation of another session, and not only the same scaffold."""
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
    """Whether a session's next prompt is much shorter than the one before, and begins with the same block. A request
    beside the conversation can look like that too, until a later one goes on from the longer prompt.
    """
    shorter = after.prompt_tokens <= COMPACTED_SHARE * before.prompt_tokens
    return shorter and bool(after.blocks) and bool(before.blocks) and after.blocks[0] == before.blocks[0]


def compactions(turns: Sequence[Prompted]) -> dict[int, Evidence]:
    """The places of the turns that begin with a compacted context, of one session's turns in order of arrival.

    The client's own count decides where it sends one. Otherwise a turn counts that `may_be_compacted`, unless a later
    turn goes on from the prompt before it.
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
        """Its arrival."""

    @property
    def ended_at(self) -> float:
        """The end of its answer, or of the try."""


def gaps(turns: Sequence[Span]) -> list[float | None]:
    """For each turn of one session, in order of arrival: the seconds since the session's answers before it had all
    ended, in which its tools ran or its user thought. None for the first turn, and for one that came before that end.
    """
    found: list[float | None] = []
    end: float | None = None
    for turn in turns:
        found.append(None if end is None or turn.at < end else turn.at - end)
        end = turn.ended_at if end is None else max(end, turn.ended_at)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What some turns were in all. Sums of turns: adding two of them gives those of all their turns, in any order.

    The time in the model is from when a request was sent to its engine until it ended, the time in queues the one
    before, both in whole microseconds, whose sums are exact. `cached_tokens` are the part of `prompt_tokens` that was
    not computed again, both only of turns that an engine got. `refusals` and `failures` are turns without an answer,
    for the reasons of `RequestOutcome`.
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
    """A duration as `Figures` add it up."""
    return round(seconds * 1e6)


def total(parts: Iterable[Figures]) -> Figures:
    """The figures of all parts together."""
    return sum(parts, Figures())


def root_of(session: str, parent: str, roots: Mapping[str, str]) -> str | None:
    """The root of a session with this parent, given the roots of the sessions that are known; a parent that is not
    known yet is a root until it comes. None where that would be a cycle, as made-up parents may form: such a parent
    does not count.
    """
    root = roots.get(parent, parent)
    return None if session in (parent, root) else root
