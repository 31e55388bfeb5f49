"""Groups of prompts with a common prefix, as in Heimdall's benchmark: many tenants, each with its own long system
prompt and a few questions.

One cycle first sends the first prompt of every group, at the warm-up rate. Then it sends all other prompts in random
order, at a rate that rises from the lowest to the highest rate. The next cycle sends the same prompts again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroupShape:
    """The shape of the groups. Lengths are in tokens, and rates in requests per second."""

    groups: int = 230
    prompts_per_group: int = 5
    prefix_tokens: int = 8000
    question_tokens: int = 1000
    output_tokens: int = 1000
    warmup_rate: float = 46.0
    lowest_rate: float = 3.0
    highest_rate: float = 100.0


def generate_prefix_groups(shape: PrefixGroupShape, seed: int) -> Iterator[TraceRow]:
    """Yield rows without end, in order of time.

    The prompts of a group share only the whole blocks of their prefix. The rest of the prefix is in the same block as
    the beginning of the question, and this block differs from prompt to prompt.
    """
    rng = Random(seed)
    length = shape.prefix_tokens + shape.question_tokens
    shared = shape.prefix_tokens // BLOCK_TOKENS
    unshared = -(-length // BLOCK_TOKENS) - shared

    def row(group: int, prompt: int, seconds: float) -> TraceRow:
        first = shape.groups * shared + (group * shape.prompts_per_group + prompt) * unshared
        ids = (*range(group * shared, (group + 1) * shared), *range(first, first + unshared))
        return TraceRow(timestamp_ms=round(seconds * 1e3), input_length=length, output_length=shape.output_tokens, hash_ids=ids)

    seconds = 0.0
    while True:
        firsts = list(range(shape.groups))
        rng.shuffle(firsts)
        for group in firsts:
            yield row(group, 0, seconds)
            seconds += rng.expovariate(shape.warmup_rate)
        rest = [(group, prompt) for group in range(shape.groups) for prompt in range(1, shape.prompts_per_group)]
        rng.shuffle(rest)
        for position, (group, prompt) in enumerate(rest):
            yield row(group, prompt, seconds)
            rate = shape.lowest_rate + (shape.highest_rate - shape.lowest_rate) * position / max(1, len(rest) - 1)
            seconds += rng.expovariate(rate)
