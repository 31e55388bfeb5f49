"""Workloads whose phases alternate, for example between long prompts with short answers and short prompts with long
answers.

No two prompts share text, so caches do not matter. The pool's capacity depends only on its instances and their roles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow

LONGEST_INPUT, LONGEST_OUTPUT = 126_000, 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of `seconds` seconds with Poisson arrivals. Lengths are in tokens and log-normal, with these medians and
    this sigma.
    """

    seconds: float
    requests_per_second: float
    input_median: float
    output_median: float
    sigma: float = 0.6


PREFILL_HEAVY = Phase(seconds=1200.0, requests_per_second=3.4, input_median=20_000, output_median=150)
DECODE_HEAVY = Phase(seconds=1200.0, requests_per_second=8.0, input_median=2_000, output_median=2_000)
"""A phase in which six of eight instances of the preset mooncake-a800-llama70b are busy, mostly with decodes. In
`PREFILL_HEAVY`, six are busy, too, mostly with prefills.
"""


CHAT = Phase(seconds=86_400.0, requests_per_second=5.0, input_median=1020, output_median=129, sigma=0.9)
"""A phase with the lengths of Azure's public trace of a chat service (2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShape:
    """The phases of a workload. After the last phase, the first phase begins again."""

    phases: tuple[Phase, ...] = (PREFILL_HEAVY, DECODE_HEAVY)

    @property
    def seconds(self) -> float:
        """Total seconds of all phases."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def requests_per_second(self) -> float:
        """Mean requests per second over all phases."""
        return sum(phase.seconds * phase.requests_per_second for phase in self.phases) / self.seconds


def generate_phases(shape: PhaseShape, seed: int) -> Iterator[TraceRow]:
    """Yield rows without end, in order of time."""
    rng = Random(seed)
    begin, seconds, next_id = 0.0, 0.0, 0
    while True:
        for phase in shape.phases:
            end = begin + phase.seconds
            seconds = begin + rng.expovariate(phase.requests_per_second)
            while seconds < end:
                length = _length(rng, phase.input_median, phase.sigma, LONGEST_INPUT)
                output = _length(rng, phase.output_median, phase.sigma, LONGEST_OUTPUT)
                blocks = -(-length // BLOCK_TOKENS)
                ids = tuple(range(next_id, next_id + blocks))
                next_id += blocks
                yield TraceRow(timestamp_ms=round(seconds * 1e3), input_length=length, output_length=output, hash_ids=ids)
                seconds += rng.expovariate(phase.requests_per_second)
            begin = end


def _length(rng: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(rng.lognormvariate(log(median), sigma))))
