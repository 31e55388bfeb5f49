"""The effect of scaling in on caches, by the choice of the removed instances."""

from dataclasses import replace
from math import fsum

from fairlead_simulator.experiments.arrival_plans import Workload
from fairlead_simulator.simulation.timeline import ScaleTo, Victims
from reproductions.runs import percent, table, workload
from reproductions.scaling_runs import WHOLE, WHOLE_TARGETS, cell, run
from reproductions.sections import Context

SIZES = (8, 7, 6, 5)
LOOK_SECONDS = 300.0
"""Seconds before and after a change in which hit rates and attainment are measured."""


def _loaded(context: Context) -> Workload:
    count = 300 if context.quick else 6000
    return workload("conversation", requests=count, max_input=WHOLE.preset.max_input_tokens, recorded=context.conversation)


def describe_victims(context: Context) -> str:
    """Run scale-ins and return the text about them."""
    loaded = _loaded(context)
    last = loaded.seconds[-1]
    times = [last * part / len(SIZES) for part in range(1, len(SIZES))]
    chosen: tuple[Victims, ...] = ("cheapest", "newest")
    cells = []
    for victims in chosen:
        events = tuple(ScaleTo(at=at, instances=number, victims=victims) for at, number in zip(times, SIZES[1:], strict=True))
        cells += [
            (loaded, cell(loaded, replace(WHOLE, instances=SIZES[0], seed=seed), None, victims, WHOLE_TARGETS, timeline=events))
            for seed in range(context.seeds)
        ]
    results = run(context, cells)
    rows = []
    for number, (at, before_it, after_it) in enumerate(zip(times, SIZES, SIZES[1:], strict=False)):
        for position, victims in enumerate(chosen):
            ran = results[position * context.seeds : (position + 1) * context.seeds]
            before, after = (
                _mean([one.hit_rate(at - LOOK_SECONDS, at) for one in ran]),
                _mean([one.hit_rate(at, at + LOOK_SECONDS) for one in ran]),
            )
            rows.append(
                [
                    f"{before_it} → {after_it}" if position == 0 else "",
                    victims,
                    percent(before),
                    percent(after),
                    f"{after / before:.0%}" if before else "–",
                    percent(_mean([one.attainment(at, at + LOOK_SECONDS) for one in ran])),
                    str(sum(one.failed for one in ran)) if number == 0 else "",
                ]
            )
    return f"""### Which instances go

**Run.** Conversations on {SIZES[0]} instances of `{WHOLE.preset.name}` (policy `{WHOLE.policy}`) that lose one at each quarter of the run: the one whose
sessions, caches and requests are worth least, as the operator chooses, or the newest, as a ReplicaSet would. Hit rates
of the prompts of {LOOK_SECONDS / 60:.0f} minutes; means over {context.seeds} seeds of the ring.

{table(["instances", "goes", "hit rate before", "after", "of before", "in time after", "failed, whole run"], rows)}"""


def _mean(values: list[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
