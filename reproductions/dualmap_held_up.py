"""Measures how often DualMap's decode correction applies, and why, every second of a run for each workload."""

from dataclasses import dataclass
from math import fsum

from fairlead.routing.choosing.batch_migration import decode_delay_seconds
from fairlead.routing.policies.dualmap import PAPER_BOTTLENECK_SECONDS
from fairlead_simulator.experiments.arrival_plans import ideal_hits
from fairlead_simulator.experiments.cells import simulate_cell
from fairlead_simulator.simulation.pool_simulation import Simulation
from reproductions.dualmap_setup import Study
from reproductions.dualmap_variants import CORRECTED

EDGE = 0.95
"""The rate as a share of the saturation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """The figures of a run, sampled every second.

    `share` (0-1) is the share of samples with a queue at an instance in which the correction counted the instance as
    held up by decodes. `memory` is the mean share (0-1) of its KV memory in use in these samples. Both are 0 without
    samples.
    """

    share: float
    memory: float


def held_up(study: Study) -> HeldUp:
    """Return the figures of `dualmap` with the correction at `EDGE`, seed 0, sampled every second."""
    queued = 0
    memory: list[float] = []

    def look(simulation: Simulation, now: float) -> None:
        nonlocal queued
        for load in simulation.scheduler.loads():
            if load.waiting:
                queued += 1
                if decode_delay_seconds(load, now, PAPER_BOTTLENECK_SECONDS, simulation.spec.prefill_tokens_per_second) > 0:
                    memory.append(simulation.fleet.instances[load.entry.id].memory.usage)

    ideal, _ = ideal_hits(study.loaded)
    simulate_cell(study.loaded, ideal, study.cell(CORRECTED, EDGE, 0), probe=look)
    return HeldUp(share=len(memory) / queued if queued else 0.0, memory=fsum(memory) / len(memory) if memory else 0.0)
