"""The benefit of expected blocks: the router counts a prompt's blocks as cached as soon as it has sent the prompt,
before KV events report them. Measured for several delays of the events.

`python -m benchmarks.expected_blocks` writes the table of docs/kv-events.md. Its load is bursts of prompts that share a
new prefix, on eight simulated engines with spare capacity, routed by three policies.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from random import Random

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Figures, Targets
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.kv_events import KvEventQuality
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import TraceRow

POLICIES = ("heimdall", "min-ttft", "fairlead")
DELAYS = (0.01, 0.1, 1.0)
SEEDS = 3
ENGINE = preset("vllm-h100-8b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Groups of requests. The `prompts` requests of a group share a new prefix of `shared_blocks` blocks of 512 tokens.

    A group begins about every `group_seconds`. Its requests follow each other with a mean pause of `pause_seconds`.
    """

    groups: int = 150
    prompts: int = 6
    shared_blocks: int = 15
    group_seconds: float = 0.8
    pause_seconds: float = 0.3

    def rows(self, seed: int) -> Iterator[TraceRow]:
        """Yield the requests in order of time."""
        draw = Random(seed)
        made: list[tuple[float, tuple[int, ...]]] = []
        each = self.shared_blocks + 2 * self.prompts
        for group in range(self.groups):
            first = group * each
            at = 1e3 * (group * self.group_seconds + draw.uniform(0.0, self.group_seconds / 2))
            for prompt in range(self.prompts):
                own = first + self.shared_blocks + 2 * prompt
                made.append((at, (*range(first, first + self.shared_blocks), own, own + 1)))
                at += 1e3 * draw.expovariate(1 / self.pause_seconds)
        for at, blocks in sorted(made):
            yield TraceRow(timestamp_ms=at, input_length=512 * self.shared_blocks + 1000, output_length=100, hash_ids=blocks)


def figures(policy: str, delay_seconds: float, speculative_seconds: float, seed: int, bursts: Bursts) -> Figures:
    """Return the figures of one run."""
    loaded = load_workload(bursts.rows(seed), requests=None, max_input=None, infer_sessions=False)
    ideal, _ = ideal_hits(loaded)
    pool = SimulatedPool(
        preset=ENGINE,
        instances=8,
        policy=policy,
        parameters={"speculative_seconds": speculative_seconds},
        prefill_tokens_per_second=believed_speed(loaded, ideal, ENGINE),
        seed=seed,
    )
    cell = Cell(
        label=policy,
        spec=pool,
        plan=ArrivalPlan(rate=loaded.native_rate, warmup=bursts.groups // 10),
        targets=Targets(ttft_seconds=ENGINE.slo_ttft_seconds),
        quality=ObservationQuality(kv_events=KvEventQuality(delay_seconds=delay_seconds)),
    )
    return simulate_cell(loaded, ideal, cell)[0].figures


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(
        "| policy, events late by | hits, by events | hits, and expected | exact, by events | exact, and expected | TTFT P50 | and expected |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for policy in POLICIES:
        for delay in DELAYS:
            told, expected = ([figures(policy, delay, seconds, seed, Bursts()) for seed in range(SEEDS)] for seconds in (0.0, 2.0))
            cells = [f"{_mean([one.hit_rate for one in runs]):.1%}".replace("%", " %") for runs in (told, expected)]
            cells += [f"{_mean([one.belief_exact or 0.0 for one in runs]):.1%}".replace("%", " %") for runs in (told, expected)]
            cells += [f"{_mean([one.ttft_p50 or 0.0 for one in runs]):.2f} s" for runs in (told, expected)]
            print(f"| `{policy}`, {delay:g} s | {' | '.join(cells)} |", flush=True)


def _mean(values: list[float]) -> float:
    return fsum(values) / len(values)


if __name__ == "__main__":
    main()
