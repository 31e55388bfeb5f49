"""Sessions of agents, as unequal as EAR reports: a few sessions have hundreds of turns and most of the input, and every
turn repeats the whole context.

Each row names its session and has, as `delay`, the seconds for which the agent's tool runs before the turn. So the
trace can be run in a closed loop, in which a turn arrives when the previous answer is finished and the tool has run.
The timestamps assume an engine without load.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import log
from random import Random

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentShape:
    """The shape of agents' sessions. Lengths are in tokens; a length with a median and a sigma is log-normal. With the
    defaults, a request has on average 33,600 prompt tokens, 75 times as many as its answer. An unlimited cache holds 80
    % of the prompt tokens. The busiest 1 % of the sessions has nearly half of them.
    """

    requests_per_second: float = 2.0
    """Mean requests per second in the long run. The rate is lower at the beginning, when the long sessions have not
    begun yet.
    """
    kinds: int = 8
    """Number of kinds of agents. Sessions of the same kind have the same system prompt."""
    system_blocks: int = 3
    turns_median: float = 2.1
    turns_sigma: float = 0.9
    giant_share: float = 0.01
    """Share of sessions that are giants: these have `giant_turns` turns on average."""
    giant_turns: float = 100.0
    opening_median: float = 7250.0
    opening_sigma: float = 0.75
    turn_median: float = 1550.0
    turn_sigma: float = 1.05
    output_median: float = 265.0
    output_sigma: float = 1.05
    longest_context: int = 120_000
    """Maximum tokens of a context. A longer context is replaced by its system prompt and a summary, which no engine has
    cached.
    """
    compacted_share: float = 0.15
    edited_share: float = 0.1
    """Share of turns at which the agent rewrites its context from a random position on. Only the part before this
    position can still be reused.
    """
    forked_share: float = 0.15
    """Share of sessions that begin with a copy of the beginning of another session's context."""
    tool_median_seconds: float = 6.0
    tool_sigma: float = 1.2
    seconds_per_output_token: float = 0.02


CODING = AgentShape(
    system_blocks=20,
    turns_median=26.0,
    turns_sigma=0.74,
    giant_share=0.0,
    opening_median=9300.0,
    opening_sigma=0.9,
    turn_median=560.0,
    turn_sigma=1.32,
    output_median=200.0,
    output_sigma=0.92,
    longest_context=100_000,
    edited_share=0.05,
    forked_share=0.0,
    tool_median_seconds=13.0,
    tool_sigma=0.86,
)
"""The shape of publicly recorded sessions of coding agents: long prompts, and dozens of turns that each add a
little.
"""
CODING_SHORT = replace(
    CODING,
    system_blocks=16,
    turns_median=10.0,
    turns_sigma=0.57,
    opening_sigma=0.5,
    turn_median=390.0,
    output_median=150.0,
    output_sigma=0.75,
    longest_context=32_000,
)
"""A variant of `CODING` whose contexts stay below 32,000 tokens."""


class _Agent:
    __slots__ = ("ids", "name", "pause_ms", "tokens", "turns_left")

    def __init__(self, name: str, ids: tuple[int, ...], tokens: int, turns: int) -> None:
        self.name = name
        self.ids = ids
        """The ids of the whole blocks in the session's context."""
        self.tokens = tokens
        self.turns_left = turns
        self.pause_ms: float | None = None


def generate_agents(shape: AgentShape, seed: int) -> Iterator[TraceRow]:
    """Yield rows without end, in order of time. Memory grows only with the number of sessions in progress."""
    rng = Random(seed)
    next_id = shape.kinds * shape.system_blocks
    started = sequence = 0
    turns = [_turns(shape, rng) for _ in range(4000)]
    between_sessions = sum(turns) / len(turns) / shape.requests_per_second
    due: list[tuple[float, int, _Agent | None]] = [(0.0, 0, None)]
    live: dict[str, _Agent] = {}
    while True:
        seconds, _, agent = heappop(due)
        if agent is None:
            agent = _start(shape, rng, f"a{started}", list(live.values()))
            started += 1
            live[agent.name] = agent
            sequence += 1
            heappush(due, (seconds + rng.expovariate(1 / between_sessions), sequence, None))
        else:
            agent.tokens += _drawn(rng, shape.turn_median, shape.turn_sigma)
        if agent.tokens > shape.longest_context:
            agent.tokens = max(BLOCK_TOKENS, int(agent.tokens * shape.compacted_share))
            agent.ids = agent.ids[: shape.system_blocks]
        elif rng.random() < shape.edited_share:
            agent.ids = agent.ids[: rng.randint(min(shape.system_blocks, len(agent.ids)), len(agent.ids))]
        total = -(-agent.tokens // BLOCK_TOKENS)
        known = agent.ids[:total]
        ids = known + tuple(range(next_id, next_id + total - len(known)))
        next_id += total - len(known)
        output = max(1, _drawn(rng, shape.output_median, shape.output_sigma))
        yield TraceRow(
            timestamp_ms=round(seconds * 1e3),
            input_length=agent.tokens,
            output_length=output,
            hash_ids=ids,
            session=agent.name,
            pause_ms=agent.pause_ms,
        )
        agent.ids = ids[: agent.tokens // BLOCK_TOKENS]
        agent.tokens += output
        agent.turns_left -= 1
        if agent.turns_left < 1:
            del live[agent.name]
            continue
        pause = rng.lognormvariate(log(shape.tool_median_seconds), shape.tool_sigma)
        agent.pause_ms = round(pause * 1e3)
        sequence += 1
        heappush(due, (seconds + output * shape.seconds_per_output_token + pause, sequence, agent))


def _start(shape: AgentShape, rng: Random, name: str, live: list[_Agent]) -> _Agent:
    """Return a new session with its first context."""
    opening = _drawn(rng, shape.opening_median, shape.opening_sigma)
    if live and rng.random() < shape.forked_share:
        parent = rng.choice(live)
        ids = parent.ids[: max(shape.system_blocks, int(len(parent.ids) * rng.random()))]
    else:
        kind = min(shape.kinds - 1, int(rng.expovariate(0.7)))
        ids = tuple(range(kind * shape.system_blocks, (kind + 1) * shape.system_blocks))
    return _Agent(name, ids, len(ids) * BLOCK_TOKENS + opening, _turns(shape, rng))


def _turns(shape: AgentShape, rng: Random) -> int:
    if rng.random() < shape.giant_share:
        return max(1, round(shape.giant_turns * rng.uniform(0.5, 1.5)))
    return _drawn(rng, shape.turns_median, shape.turns_sigma)


def _drawn(rng: Random, median: float, sigma: float) -> int:
    return max(1, round(rng.lognormvariate(log(median), sigma)))
