"""The load of a pool with the roles prefill and decode, and the speed of engines that fits this load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.traces.descriptions import IdealCache
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.workloads import ConversationShape, generate_conversations

DECODE = preset("dualmap-910b4-qwen7b").decode
"""The decode cost of the simulated engine that is served. Only its fixed part can be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The rows to send, and the speed of engines at which these rows keep the engines busy to a given share.

    `speed` is the factor by which rows are sent faster than their timestamps say. `ideal` has, for each row, the number
    of prompt tokens that an endless cache shared by all instances would have held.
    """

    rows: Sequence[TraceRow]
    speed: float
    ideal: Sequence[int]
    prefill_tokens_per_second: float
    decode_step_seconds: float

    def words(self) -> str:
        """Return the load in one sentence."""
        count = len(self.rows)
        seconds = (self.rows[-1].timestamp_ms - self.rows[0].timestamp_ms) / 1e3 / self.speed
        prompts = sum(row.input_length for row in self.rows)
        outputs = sum(row.output_length for row in self.rows)
        return (
            f"{count / seconds:.2f} requests/s ({self.speed:.2f} times as fast as stamped) of {prompts / count:,.0f} prompt tokens, "
            f"{sum(self.ideal) / prompts:.1%} of them reusable at best, and {outputs / count:,.0f} output tokens on average; "
            f"engines prefill {self.prefill_tokens_per_second:,.0f} tokens/s, a decode step takes "
            f"{self.decode_step_seconds * 1e3:.0f} ms and more"
        )


def trace_rows(trace: Path | None, seed: int = 0) -> list[TraceRow]:
    """Return all rows of a trace in Mooncake's format, or generated conversations if there is no trace."""
    return list(read_trace(trace)) if trace is not None else list(islice(generate_conversations(ConversationShape(), seed), 12_000))


def work_for(rows: Sequence[TraceRow], *, rate: float, seconds: float, instances: int, utilisation: float, tpot_seconds: float) -> Work:
    """Return the rows of `seconds` seconds at `rate` requests per second, and the speed of engines for them.

    There are `instances` instances of each role, and these rows use the share `utilisation` of their capacity. The
    capacity of the prefill instances is the number of tokens that they compute in this time; the rows' tokens that even
    an endless cache leaves to compute are this share of it. The capacity of the decode instances is the number of
    output tokens that they generate with the largest batch whose step takes at most `tpot_seconds`; the rows' output
    tokens are this share of it.

    Raises ValueError if no decode step is short enough. Raises ValueError also if there are too few rows, because the
    last windows would have no load.
    """
    wanted = max(2, round(rate * seconds))
    if len(rows) < wanted:
        raise ValueError(f"the trace has {len(rows):,} requests, and {rate:g} a second for {seconds:.0f} s are {wanted:,}; lower --rate")
    sent = rows[:wanted]
    speed = rate * (sent[-1].timestamp_ms - sent[0].timestamp_ms) / 1e3 / len(sent)
    cache = IdealCache()
    ideal = [cache.add(row) for row in sent]
    uncached = sum(row.input_length - hit for row, hit in zip(sent, ideal, strict=True)) / len(sent)
    outputs = sum(row.output_length for row in sent)
    context = sum(row.output_length * (row.input_length + row.output_length / 2) for row in sent) / outputs
    tokens_per_second = rate * outputs / len(sent) / instances / utilisation
    batch = tokens_per_second * tpot_seconds
    step = tpot_seconds - batch * (DECODE.per_sequence + DECODE.per_context_token * context)
    if step < 1e-3:
        raise ValueError(f"at {rate:g} requests/s no decode step is within {tpot_seconds:g} s; lower --rate")
    return Work(
        rows=sent,
        speed=speed,
        ideal=ideal,
        prefill_tokens_per_second=rate * uncached / instances / utilisation,
        decode_step_seconds=step,
    )
