"""Describes a trace by its rates, its lengths, and the share of its prompt tokens that a cache could hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The distribution over requests of a number of tokens."""

    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float

    @staticmethod
    def of(values: Iterable[float]) -> "Distribution":
        """Return the distribution of the values; there must be at least one value. Percentiles are nearest-rank."""
        ordered = sorted(values)
        return Distribution(
            mean=sum(ordered) / len(ordered),
            p50=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p99=percentile(ordered, 99),
            maximum=ordered[-1],
        )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values; there must be at least one value."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


class IdealCache:
    """An unlimited cache shared by all requests. Its hits are an upper bound: no real cache can save more prompt
    tokens.
    """

    def __init__(self) -> None:
        self._known: set[int] = set()
        self.block_references = 0
        self.block_hits = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0

    @property
    def distinct_blocks(self) -> int:
        return len(self._known)

    @property
    def token_hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def block_hit_rate(self) -> float:
        return self.block_hits / self.block_references if self.block_references else 0.0

    def add(self, row: TraceRow) -> int:
        """Look up a prompt, and then add it to the cache. Return the number of its tokens that were cached, in whole
        blocks. At least the prompt's last token counts as not cached.
        """
        known = 0
        for block in row.hash_ids:
            if block not in self._known:
                break
            known += 1
        self._known.update(row.hash_ids)
        tokens = min(known, (row.input_length - 1) // BLOCK_TOKENS) * BLOCK_TOKENS
        self.block_references += len(row.hash_ids)
        self.block_hits += known
        self.prompt_tokens += row.input_length
        self.hit_tokens += tokens
        return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDescription:
    """The figures of a whole trace. Rates are per second of trace time. Hit rates are the hit rates of an unlimited
    shared cache.
    """

    requests: int
    span_seconds: float
    requests_per_second: float
    distinct_stamps: int
    input_tokens: Distribution
    output_tokens: Distribution
    block_references: int
    distinct_blocks: int
    block_hit_rate: float
    token_hit_rate: float


def describe(rows: Iterable[TraceRow]) -> TraceDescription:
    """Return the figures of the rows; there must be at least one row."""
    cache = IdealCache()
    stamps: set[float] = set()
    inputs: list[float] = []
    outputs: list[float] = []
    first, last = float("inf"), float("-inf")
    for row in rows:
        cache.add(row)
        stamps.add(row.timestamp_ms)
        inputs.append(row.input_length)
        outputs.append(row.output_length)
        first, last = min(first, row.timestamp_ms), max(last, row.timestamp_ms)
    span = (last - first) / 1e3
    return TraceDescription(
        requests=len(inputs),
        span_seconds=span,
        requests_per_second=len(inputs) / span if span > 0 else 0.0,
        distinct_stamps=len(stamps),
        input_tokens=Distribution.of(inputs),
        output_tokens=Distribution.of(outputs),
        block_references=cache.block_references,
        distinct_blocks=cache.distinct_blocks,
        block_hit_rate=cache.block_hit_rate,
        token_hit_rate=cache.token_hit_rate,
    )
