"""Finds the settings that make the difference.

It varies the published code's key, threshold and queue order one by one, the queue timeout, DualMap's parts, and
anchors.
"""

from collections.abc import Sequence
from dataclasses import replace

from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.policies.dualmap import PAPER_BOTTLENECK_SECONDS
from reproductions.dualmap_rates import NAMES
from reproductions.dualmap_setup import BASELINES, CODE_QUEUE, DUALMAP, NEVER_SECONDS, Results, Study, Variant
from reproductions.runs import percent, table

OVERLOADED = (0.9, 1.0, 1.25)
QUEUES = (
    Variant(label="`dualmap`, FIFO", policy="dualmap"),
    Variant(label="`dualmap-code`, FIFO", policy="dualmap", parameters={"preset": "dualmap-code", "queue_discipline": "fifo"}),
    Variant(label="`dualmap`, longest hit first", policy="dualmap", parameters=CODE_QUEUE),
    Variant(label="`dualmap-code`, longest hit first", policy="dualmap", parameters={"preset": "dualmap-code"}),
    Variant(
        label="`dualmap-code`, longest hit first, age bound 2 s",
        policy="dualmap",
        parameters={"preset": "dualmap-code", "queue_age_bound_seconds": 2.0},
    ),
    Variant(label="`min-ttft`, longest hit first", policy="min-ttft", parameters=CODE_QUEUE),
)
NO_REBALANCING = Variant(label="no rebalancing", policy="dualmap", parameters={"rebalance": False})
AT_ARRIVAL = Variant(label="no sweep", policy="dualmap", parameters={"sweep": False})
CORRECTED = Variant(label="decode correction", policy="dualmap", parameters={"bottleneck_seconds": PAPER_BOTTLENECK_SECONDS})
PAPER = Variant(label="dualmap-paper", policy="dualmap", parameters={"preset": "dualmap-paper"})
ABLATION = (0.85, 0.9, 0.95)


def few(study: Study) -> int:
    """Return the number of seeds for minor questions: at most two, because they show an effect of many points."""
    return min(2, study.context.seeds)


def queues(study: Study) -> Results:
    """Run presets and queue orders near and beyond saturation."""
    return study.run(QUEUES, OVERLOADED[:2] if study.context.quick else OVERLOADED, few(study))


def queue_table(both: Sequence[tuple[Study, Results]]) -> str:
    """Return a table with the attainment of each variant at the rates of `queues`, for both workloads."""
    multiples = both[0][1].multiples(QUEUES[0].label)
    rows = [
        [one.label, *(percent(results.mean(one.label, multiple, "attainment")) for _, results in both for multiple in multiples)]
        for one in QUEUES
    ]
    return table(["", *(f"{study.title} {multiple:g}×" for study, _ in both for multiple in multiples)], rows)


def untimed(study: Study) -> Results:
    """Run all policies with the same queue and the same seeds again, but without refusals after a long wait."""
    variants = [replace(one, parameters={"queue_timeout_seconds": NEVER_SECONDS}) for one in (DUALMAP, *BASELINES)]
    return study.run(variants, (0.9,) if study.context.quick else (1.0, 1.25), study.context.seeds)


def timeout_table(both: Sequence[tuple[Study, Results, Results]]) -> str:
    """Return a table with, for each policy: attainment with the timeout and without it, and the share refused with it.

    `both` has (study, timed results, untimed results).
    """
    multiples = both[0][2].multiples("dualmap")
    rows = [
        [
            f"`{label}`",
            *(
                f"{percent(timed.mean(label, multiple, 'attainment'))} / {percent(endless.mean(label, multiple, 'attainment'))} "
                f"({percent(timed.mean(label, multiple, 'rejected_share'))})"
                for _, timed, endless in both
                for multiple in multiples
            ),
        ]
        for label in ("dualmap", *NAMES)
    ]
    return table(["with / without (refused)", *(f"{study.title} {multiple:g}×" for study, _, _ in both for multiple in multiples)], rows)


def largest_shift(both: Sequence[tuple[Study, Results, Results]]) -> float:
    """Return the largest change of any policy's attainment by the timeout, as a share (0-1)."""
    return max(
        abs(timed.mean(label, multiple, "attainment") - endless.mean(label, multiple, "attainment"))
        for _, timed, endless in both
        for label, multiple in endless.cells
    )


def ablation(study: Study) -> Results:
    """Run DualMap's parts that are not policies of their own, with as many seeds as the policies that they are compared
    with.
    """
    return study.run((NO_REBALANCING, AT_ARRIVAL, CORRECTED, PAPER), ABLATION[1:] if study.context.quick else ABLATION, study.context.seeds)


ABLATED = (
    ("cache affinity alone (`cache-affinity`)", "cache-affinity"),
    ("load alone (`least-loaded`)", "least-loaded"),
    ("both in one estimate, all instances (`min-ttft`)", "min-ttft"),
    ("pair and SLO rule, no rebalancing (`rebalance: false`)", NO_REBALANCING.label),
    ("rebalancing where a request finds both overloaded (`sweep: false`)", AT_ARRIVAL.label),
    ("rebalancing of all queues too (`dualmap`)", "dualmap"),
    ("the same with the decode correction (`bottleneck_seconds: 3`)", CORRECTED.label),
    ("as the paper has both (`dualmap-paper`)", PAPER.label),
)


def ablation_table(study: Study, results: Results) -> str:
    """Return a table with attainment, hits as a share of the ideal, and moves of each part, at the rates of `ablation`.

    `results` must contain the policies too.
    """
    multiples = results.multiples(NO_REBALANCING.label)
    rows = [
        [
            title,
            *(percent(results.mean(label, multiple, "attainment")) for multiple in multiples),
            *(percent(results.mean(label, multiple, "hit_rate") / study.ideal_hit_rate) for multiple in multiples),
            f"{results.mean(label, multiples[-1], 'moves'):.0f}",
        ]
        for title, label in ABLATED
    ]
    heading = [
        study.title,
        *(f"{one:g}×" for one in multiples),
        *(f"hits of ideal {one:g}×" for one in multiples),
        f"moves {multiples[-1]:g}×",
    ]
    return table(heading, rows)


SINGLE = tuple(replace(one, label=f"{one.label}, 1 anchor", anchors=1) for one in (DUALMAP, BASELINES[0]))


def single_anchors(study: Study) -> Results:
    """Run the two policies that use anchors with one anchor per instance, as the paper describes the rings."""
    return study.run(SINGLE, (0.75,), study.context.seeds)


def anchor_table(both: Sequence[tuple[Study, Results]]) -> str:
    """Return a table with the attainment at 0.75× of the worst and the best seed, with 1 and 160 anchors.

    The results must contain those of `same_queue` too.
    """
    rows: list[list[str]] = []
    for policy in ("dualmap", "cache-affinity"):
        for label, anchors in ((policy, 160), (f"{policy}, 1 anchor", 1)):
            cells = [f"`{policy}`, {anchors} per instance"]
            for _, results in both:
                found = results.attainments(label, 0.75)
                cells.append(f"{percent(results.mean(label, 0.75, 'attainment'))} ({percent(min(found))} to {percent(max(found))})")
            rows.append(cells)
    return table(["0.75×, mean (worst to best seed)", *(study.title for study, _ in both)], rows)


def largest_share(study: Study, anchors: int) -> float:
    """Return the ratio of the largest owner's share of a ring to an even share, in the worst seed."""
    worst = 0.0
    for seed in range(study.context.seeds):
        spec = study.cell(replace(DUALMAP, anchors=anchors), 1.0, seed).spec
        shares = HashRing.of(spec.first_table().instances).shares()
        worst = max(worst, max(shares.values()) * len(shares))
    return worst
