"""Tools and agents as in Mooncake's Tool&Agent trace: calls of two tools, each with long instructions that every call
repeats, and conversations.

The generator is modelled on the published sample. Requests arrive in groups every 3.053 s; 38 % of them call the tool
with 12 shared blocks, 15 % call the tool with 5 shared blocks, and the rest are conversations. The means are 8,596
prompt tokens and 182 answer tokens. An unlimited cache holds 59 % of the blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from random import Random

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAgentShape:
    """The shape of the workload. Shares are shares of requests, unless noted. Lengths are in tokens; a length with a
    median and a sigma is log-normal.
    """

    requests_per_second: float = 6.56
    group_seconds: float = 3.053
    """Seconds between groups of requests. All requests of a group have the same timestamp. 0 = requests come one by
    one, as Poisson arrivals.
    """
    long_tool_share: float = 0.385
    long_tool_blocks: int = 12
    long_tool_repeat_share: float = 0.04
    """Share of calls that repeat or extend an earlier call, among the calls of the tool with the longer
    instructions.
    """
    short_tool_share: float = 0.15
    short_tool_blocks: int = 5
    continue_share: float = 0.47
    """Share of requests that continue an earlier session, among the requests of conversations."""
    live_sessions: int = 2000
    opening_median: float = 5420.0
    opening_sigma: float = 1.25
    turn_median: float = 480.0
    turn_sigma: float = 0.85
    shortest_input: int = 890
    longest_input: int = 126_000
    output_median: float = 373.0
    output_sigma: float = 0.42
    short_output_share: float = 0.10
    longest_output: int = 2000


class _Session:
    __slots__ = ("full_ids", "tokens")

    def __init__(self, full_ids: tuple[int, ...], tokens: int) -> None:
        self.full_ids = full_ids
        self.tokens = tokens


class _Ids:
    """A generator of block ids that were not used before."""

    def __init__(self, first: int) -> None:
        self._next = first

    def fresh(self, count: int) -> tuple[int, ...]:
        self._next += count
        return tuple(range(self._next - count, self._next))


def generate_tool_agents(shape: ToolAgentShape, seed: int) -> Iterator[TraceRow]:
    """Yield rows without end, in order of time."""
    rng = Random(seed)
    long_tool = tuple(range(1, 1 + shape.long_tool_blocks))
    short_tool = tuple(range(100, 100 + shape.short_tool_blocks))
    ids = _Ids(1000)
    calls: list[TraceRow] = []
    sessions: list[_Session] = []
    for stamp in _stamps(shape, rng):
        drawn = rng.random()
        if drawn < shape.long_tool_share:
            row = _long_call(shape, rng, ids, long_tool, calls, stamp)
            calls.append(row)
            if len(calls) > shape.live_sessions:
                del calls[0]
            yield row
        elif drawn < shape.long_tool_share + shape.short_tool_share:
            new = 1 if rng.random() < 0.16 else 2
            length = BLOCK_TOKENS * (len(short_tool) + new - 1) + rng.randint(20, BLOCK_TOKENS)
            yield TraceRow(
                timestamp_ms=stamp,
                input_length=length,
                output_length=max(1, round(rng.gauss(19, 3))),
                hash_ids=short_tool + ids.fresh(new),
            )
        else:
            yield _turn(shape, rng, ids, sessions, stamp)


def _stamps(shape: ToolAgentShape, rng: Random) -> Iterator[float]:
    """Yield timestamps in milliseconds, one per request. The number of requests in a group is Poisson-distributed; its
    mean gives the requested rate.
    """
    seconds = 0.0
    if shape.group_seconds <= 0:
        while True:
            yield round(seconds * 1e3)
            seconds += rng.expovariate(shape.requests_per_second)
    threshold = exp(-shape.requests_per_second * shape.group_seconds)
    while True:
        product = rng.random()
        while product > threshold:
            yield round(seconds * 1e3)
            product *= rng.random()
        seconds += shape.group_seconds


def _long_call(
    shape: ToolAgentShape, rng: Random, ids: _Ids, instructions: tuple[int, ...], calls: list[TraceRow], stamp: float
) -> TraceRow:
    output = 3 if rng.random() < 0.6 else rng.randint(22, 50)
    if calls and rng.random() < shape.long_tool_repeat_share:
        earlier = calls[-1 - min(len(calls) - 1, int(rng.expovariate(1 / 200)))]
        if rng.random() < 0.5:
            return TraceRow(timestamp_ms=stamp, input_length=earlier.input_length, output_length=output, hash_ids=earlier.hash_ids)
        known = earlier.hash_ids[: earlier.full_blocks]
    else:
        known = instructions
    new = rng.choices((1, 2, 3, 4, 5, 7, 48), (58, 35, 9, 3, 1, 1, 1))[0] if rng.random() < 0.2 else rng.choices((1, 2, 3), (57, 34, 9))[0]
    length = BLOCK_TOKENS * (len(known) + new - 1) + rng.randint(20, BLOCK_TOKENS)
    return TraceRow(timestamp_ms=stamp, input_length=length, output_length=output, hash_ids=known + ids.fresh(new))


def _turn(shape: ToolAgentShape, rng: Random, ids: _Ids, sessions: list[_Session], stamp: float) -> TraceRow:
    if rng.random() < shape.short_output_share:
        output = rng.randint(1, 99)
    else:
        output = max(1, min(shape.longest_output, round(rng.lognormvariate(log(shape.output_median), shape.output_sigma))))
    session: _Session | None = None
    length = 0
    if sessions and rng.random() < shape.continue_share:
        age = min(len(sessions) - 1, int(rng.expovariate(6.0 / shape.live_sessions)))
        session = sessions.pop(-1 - age)
        length = session.tokens + max(1, round(rng.lognormvariate(log(shape.turn_median), shape.turn_sigma)))
    if session is None or length > shape.longest_input:
        session = _Session((0,), BLOCK_TOKENS)
        drawn = round(rng.lognormvariate(log(shape.opening_median), shape.opening_sigma))
        length = max(shape.shortest_input, min(shape.longest_input, drawn))
    total = -(-length // BLOCK_TOKENS)
    known = session.full_ids[:total]
    hash_ids = known + ids.fresh(total - len(known))
    session.full_ids = hash_ids[: length // BLOCK_TOKENS]
    session.tokens = length + output
    sessions.append(session)
    if len(sessions) > shape.live_sessions:
        del sessions[0]
    return TraceRow(timestamp_ms=stamp, input_length=length, output_length=output, hash_ids=hash_ids)
