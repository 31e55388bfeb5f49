"""Measures the best number of candidates of a key.

With one candidate a policy is plain affinity, with all instances as candidates a free choice. The paper says that two
are enough.
"""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from reproductions.dualmap_setup import COLOURS, INSTANCES, MARKERS, Results, Study, Variant
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context

COUNTS = (1, 2, 3, 4)
MULTIPLES = (0.85, 0.9, 0.95, 1.0)
EDGE = 0.95
"""The rate at which most of the pool is always busy, so that the choice matters most."""
FULL = tuple(Variant(label=f"d = {count}", policy="dualmap", parameters={"candidates": count}) for count in COUNTS)
STILL = tuple(
    Variant(label=f"d = {count}, no rebalancing", policy="dualmap", parameters={"candidates": count, "rebalance": False})
    for count in COUNTS
)


def counts(study: Study) -> Results:
    """Run every number of candidates, with and without rebalancing, and return the results."""
    return study.run((*FULL, *STILL), (0.9, EDGE) if study.context.quick else MULTIPLES, study.context.seeds)


def count_table(study: Study, results: Results) -> str:
    """Return a table with, for each number: attainment at each rate with (without) rebalancing, hits and balance at
    0.9×.
    """
    multiples = results.multiples(FULL[0].label)
    rows = [
        [
            full.label,
            *(
                f"{percent(results.mean(full.label, one, 'attainment'))} ({percent(results.mean(still.label, one, 'attainment'))})"
                for one in multiples
            ),
            percent(results.mean(full.label, 0.9, "hit_rate") / study.ideal_hit_rate),
            f"{results.mean(full.label, 0.9, 'load_cv'):.2f}",
        ]
        for full, still in zip(FULL, STILL, strict=True)
    ]
    return table([study.title, *(f"{one:g}×" for one in multiples), "hits of ideal 0.9×", "CV 0.9×"], rows)


def steps(results: Results, variants: Sequence[Variant]) -> tuple[float, ...]:
    """Return the change of mean attainment (0-1, over all rates of the run) with each further candidate."""
    multiples = results.multiples(variants[0].label)
    means = [sum(results.mean(one.label, multiple, "attainment") for multiple in multiples) / len(multiples) for one in variants]
    return tuple(after - before for before, after in pairwise(means))


def knee(changes: Sequence[float]) -> bool:
    """Return whether the second candidate gains at least twice as much as all further candidates together."""
    return changes[0] > 0 and changes[0] >= 2 * max(0.0, sum(changes[1:]))


def plot(context: Context, name: str, both: Sequence[tuple[Study, Results]]) -> str:
    """Plot attainment against rate for each number of candidates, and return the Markdown of the picture.

    Lines are solid with rebalancing and dotted without.
    """
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (study, results) in zip(panels, both, strict=True):
        for variants, line in ((FULL, "-"), (STILL, ":")):
            for number, one in enumerate(variants):
                multiples = results.multiples(one.label)
                axes.plot(
                    [multiple * study.saturation for multiple in multiples],
                    [100 * results.mean(one.label, multiple, "attainment") for multiple in multiples],
                    color=COLOURS[number],
                    marker=MARKERS[number],
                    markersize=5,
                    linestyle=line,
                    linewidth=1.2,
                    label=one.label if line == "-" else None,
                )
        axes.axhline(90, color="grey", linewidth=0.7, linestyle=":")
        axes.set(xlabel="requests per second", title=study.title, ylim=(-2, 102))
    panels[0].set_ylabel("first token within 5 s, % of all that arrived")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=6)
    figure.suptitle(f"Candidates per key, {INSTANCES} instances (dotted: without rebalancing)")
    figure.savefig(context.image(name), dpi=110, metadata={"Software": None})
    return f"![attainment against rate by number of candidates]({IMAGES}/{name})"
