"""Compares the agentic generator with the EAR draft's figures of its trace: how sessions share the input, and the
origins of reused blocks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fairlead_simulator.traces.descriptions import IdealCache
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.agents import AgentShape, generate_agents
from reproductions.runs import percent, table
from reproductions.sections import Context

TOP_SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
PUBLISHED_TOP = (0.465, 0.665, 0.746, 0.875, 0.960)
REQUESTS = 20_000
CLOSE = 0.05
"""The difference from the published share up to which the share counts as met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShape:
    """The shape of a trace, as shares 0-1.

    `top` has the shares of input tokens of the busiest 1, 5, 10, 25 and 50 % of sessions. Origins are shares of all
    reused blocks.
    """

    top: tuple[float, ...]
    own_session: float
    other_session: float
    system_prompt: float
    ideal_hits: float
    input_tokens: float
    input_per_output: float


def shape_of(rows: Sequence[TraceRow], system_ids: int) -> TraceShape:
    """Return the shape of a trace. At least one row must name its session. Block ids below `system_ids` are system
    prompts.

    A reused block counts for its own session if the session has sent the block before. Otherwise it counts for the
    system prompt or for another session.
    """
    held, origins = Counter[str](), Counter[str]()
    known: set[int] = set()
    own: defaultdict[str, set[int]] = defaultdict(set)
    cache = IdealCache()
    for row in rows:
        session = row.session or ""
        held[session] += row.input_length
        cache.add(row)
        for block in row.hash_ids:
            if block in own[session]:
                origins["own"] += 1
            elif block in known:
                origins["system" if block < system_ids else "other"] += 1
        known.update(row.hash_ids)
        own[session].update(row.hash_ids)
    reused = max(1, origins.total())
    total = held.total()
    return TraceShape(
        top=tuple(held_by_busiest(held.values(), share) for share in TOP_SHARES),
        own_session=origins["own"] / reused,
        other_session=origins["other"] / reused,
        system_prompt=origins["system"] / reused,
        ideal_hits=cache.token_hit_rate,
        input_tokens=total / len(rows),
        input_per_output=total / sum(row.output_length for row in rows),
    )


def held_by_busiest(held: Iterable[int], share: float) -> float:
    """Return the share of all tokens that this share of sessions holds, counting the sessions with most tokens first.

    At least one session is counted.
    """
    ordered = sorted(held, reverse=True)
    return sum(ordered[: max(1, round(share * len(ordered)))]) / sum(ordered)


def write_trace(context: Context) -> str:
    """Return a table of the generator's figures beside the published ones."""
    shape = AgentShape()
    requests = 300 if context.quick else REQUESTS
    found = [
        shape_of(list(islice(generate_agents(shape, seed), requests)), shape.kinds * shape.system_blocks) for seed in range(context.seeds)
    ]
    lines = [
        (f"input held by the busiest {top:.0%} of sessions".replace("%", " %"), published, [one.top[index] for one in found])
        for index, (top, published) in enumerate(zip(TOP_SHARES, PUBLISHED_TOP, strict=True))
    ]
    lines += [
        ("reused blocks sent before by the same session", 0.932, [one.own_session for one in found]),
        ("… by another session only", 0.057, [one.other_session for one in found]),
        ("… as a system prompt", 0.011, [one.system_prompt for one in found]),
        ("hit rate of an endless shared cache", 0.803, [one.ideal_hits for one in found]),
    ]
    rows = [_line(name, published, values, percent) for name, published, values in lines]
    rows += [
        _line("input tokens per request", 33_600, [one.input_tokens for one in found], lambda value: f"{value:,.0f}"),
        _line("input : output tokens", 75, [one.input_per_output for one in found], lambda value: f"{value:.0f}"),
    ]
    far = [name for name, published, values in lines if abs(sum(values) / len(values) - published) > CLOSE]
    verdict = "All shares are within five points of the published ones" if not far else f"Further than five points off: {'; '.join(far)}"
    return f"""The draft's trace is not public; the generator `agentic` has its published shape: {requests:,} requests of each of {context.seeds} seeds.

{table(("", "published", "generated", "seeds"), rows)}

{verdict}. What a seed's trace holds hangs on few sessions: one in a
hundred goes on for about a hundred turns, so that traces of one seed and another differ by as much as the table shows."""


def _line(name: str, published: float, values: Sequence[float], written: Callable[[float], str]) -> tuple[str, ...]:
    spread = f"{written(min(values))} to {written(max(values))}"
    return name, written(published), written(sum(values) / len(values)), spread
