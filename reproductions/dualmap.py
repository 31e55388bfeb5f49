"""DualMap (ICLR 2026) in the simulator: its effective request capacity, goodput, ablation, elasticity and number of
candidates.
"""

from reproductions import dualmap_candidates as candidates
from reproductions import dualmap_elasticity as elasticity
from reproductions import dualmap_prose as prose
from reproductions import dualmap_rates as rates
from reproductions import dualmap_variants as variants
from reproductions.dualmap_claims import Measured, claims
from reproductions.dualmap_held_up import held_up
from reproductions.dualmap_homes import KeyMoves, key_moves
from reproductions.dualmap_setup import Results, Study, studies
from reproductions.sections import Context, Section

Pair = tuple[tuple[Study, Results], tuple[Study, Results]]


def write(context: Context) -> str:
    """Run all parts and return the section's text."""
    first, second = studies(context)
    same: Pair = ((first, rates.same_queue(first)), (second, rates.same_queue(second)))
    published: Pair = ((first, rates.as_published(first)), (second, rates.as_published(second)))
    counted: Pair = ((first, candidates.counts(first)), (second, candidates.counts(second)))
    moves = {mode: key_moves(*elasticity.pools(first), mode) for mode in ("distinct", "paper")}
    both = (
        Measured(study=first, same=same[0][1], published=published[0][1]),
        Measured(study=second, same=same[1][1], published=published[1][1]),
    )
    knees = {study.title: candidates.knee(candidates.steps(results, candidates.FULL)) for study, results in counted}
    parts = [
        prose.introduction(both),
        claims(both, knees, minimal=moves["distinct"].needless == 0.0),
        "### One queue for every policy",
        *_rates(context, same, ("dualmap", *rates.NAMES, "fairlead"), "dualmap-same-queue.png", "One FIFO queue for every policy"),
        prose.same_queue(both),
        "### As the published code runs them",
        *_rates(context, published, ("dualmap", *rates.NAMES), "dualmap-as-published.png", "Each as DualMap's published code runs it"),
        prose.as_published(both),
        *_queues(same),
        "### Ablation",
        *_ablation(same),
        "### Elasticity: 4 → 8 → 4 instances",
        *_elasticity(context, first, moves),
        "### Number of candidates",
        candidates.plot(context, "dualmap-candidates.png", counted),
        *(candidates.count_table(study, results) for study, results in counted),
        prose.candidates(counted, knees),
        "### Anchors per instance",
        *_anchors(same),
    ]
    return "\n\n".join(parts)


def _rates(context: Context, pair: Pair, labels: tuple[str, ...], image: str, title: str) -> list[str]:
    parts = [rates.plot(context, image, title, pair), *(rates.attainments(study, results, labels) for study, results in pair)]
    return [*parts, *(rates.details(study, results, ("dualmap", *rates.NAMES)) for study, results in pair)]


def _queues(same: Pair) -> list[str]:
    queued = [(study, variants.queues(study)) for study, _ in same]
    timed = [(study, results, variants.untimed(study)) for study, results in same]
    return [
        "### Queue order, key and timeout one by one",
        variants.queue_table(queued),
        prose.queues(queued),
        variants.timeout_table(timed),
        prose.timeout(variants.largest_shift(timed)),
    ]


def _ablation(same: Pair) -> list[str]:
    complete = [(study, results.with_others(variants.ablation(study))) for study, results in same]
    return [
        *(variants.ablation_table(study, results) for study, results in complete),
        prose.ablation(complete, [held_up(study) for study, _ in same]),
    ]


def _elasticity(context: Context, study: Study, moves: dict[str, KeyMoves]) -> list[str]:
    found = elasticity.run(study)
    return [
        prose.elastic_load(),
        elasticity.plot(context, "dualmap-elasticity.png", found),
        elasticity.phase_table(study, found),
        elasticity.step_table(found),
        prose.elasticity(found, moves),
    ]


def _anchors(same: Pair) -> list[str]:
    complete = [(study, results.with_others(variants.single_anchors(study))) for study, results in same]
    shares = {anchors: variants.largest_share(same[0][0], anchors) for anchors in (1, 160)}
    return [variants.anchor_table(complete), prose.anchors(shares)]


SECTION = Section(name="dualmap", title="DualMap: effective capacity, goodput, ablation, elasticity, number of candidates", write=write)
