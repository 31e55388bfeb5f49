"""Conversations with an assistant. A session grows with each turn, and all sessions have the same system prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow

SYSTEM_BLOCK = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationShape:
    """The shape of a workload of conversations. The defaults resemble Mooncake's conversation trace: on average 12,000
    prompt tokens and 343 answer tokens; an unlimited cache would hold 37 % of the prompt tokens.

    Lengths are in tokens; a length with a median and a sigma is log-normal.
    """

    requests_per_second: float = 3.4
    continue_share: float = 0.37
    """Share of requests that continue an earlier session."""
    live_sessions: int = 2000
    """Number of sessions, the latest ones, that can be continued. More recent sessions are continued more often."""
    opening_median: float = 5300.0
    opening_sigma: float = 1.2
    turn_median: float = 900.0
    turn_sigma: float = 1.4
    output_median: float = 280.0
    output_sigma: float = 0.65
    shortest_input: int = 890
    longest_input: int = 126_000
    longest_output: int = 2000
    smallest_pause_seconds: float = 2.0
    """Minimum seconds between two turns of a session."""


LONG_DOCUMENTS = ConversationShape(
    continue_share=0.62,
    live_sessions=300,
    opening_median=11_000.0,
    opening_sigma=1.0,
    turn_median=200.0,
    turn_sigma=1.5,
    output_median=69.0,
    output_sigma=1.5,
    shortest_input=30,
    longest_output=900,
)
"""The shape of several questions about the same long document, with short answers, as in Mooncake's synthetic trace."""


class _Session:
    __slots__ = ("full_ids", "last_seconds", "tokens")

    def __init__(self, full_ids: tuple[int, ...], tokens: int, last_seconds: float) -> None:
        self.full_ids = full_ids
        self.tokens = tokens
        self.last_seconds = last_seconds


def generate_conversations(shape: ConversationShape, seed: int) -> Iterator[TraceRow]:
    """Yield rows without end, with Poisson arrivals. Every prompt begins with the same system block. The blocks of its
    session follow; their number grows with each turn.
    """
    rng = Random(seed)
    sessions: list[_Session] = []
    next_id = SYSTEM_BLOCK + 1
    seconds = 0.0
    while True:
        session = _pick(sessions, shape, seconds, rng) if rng.random() < shape.continue_share else None
        output = max(1, min(shape.longest_output, round(rng.lognormvariate(log(shape.output_median), shape.output_sigma))))
        if session is not None:
            length = session.tokens + max(1, round(rng.lognormvariate(log(shape.turn_median), shape.turn_sigma)))
        if session is None or length > shape.longest_input:
            session = _Session((SYSTEM_BLOCK,), BLOCK_TOKENS, seconds)
            sessions.append(session)
            drawn = round(rng.lognormvariate(log(shape.opening_median), shape.opening_sigma))
            length = max(shape.shortest_input, min(shape.longest_input, drawn))
        total = -(-length // BLOCK_TOKENS)
        shared = session.full_ids[:total]
        ids = shared + tuple(range(next_id, next_id + total - len(shared)))
        next_id += total - len(shared)
        yield TraceRow(timestamp_ms=round(seconds * 1e3), input_length=length, output_length=output, hash_ids=ids)
        session.full_ids = ids[: length // BLOCK_TOKENS]
        session.tokens = length + output
        session.last_seconds = seconds
        sessions.remove(session)
        sessions.append(session)
        if len(sessions) > shape.live_sessions:
            del sessions[0]
        seconds += rng.expovariate(shape.requests_per_second)


def _pick(sessions: list[_Session], shape: ConversationShape, seconds: float, rng: Random) -> _Session | None:
    """Return a session to continue, preferably a recent one, whose last turn is at least `smallest_pause_seconds` ago;
    None if none was found.
    """
    if not sessions:
        return None
    for _ in range(8):
        age = int(rng.expovariate(8.0 / shape.live_sessions))
        if age < len(sessions):
            session = sessions[-1 - age]
            if seconds - session.last_seconds >= shape.smallest_pause_seconds:
                return session
    return None
