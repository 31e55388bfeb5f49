"""Lodestar: a TTFT that is learned online against its heuristic, on equal and on mixed instances, and the effect of its
parts.
"""

from collections.abc import Sequence

from reproductions.lodestar_runs import (
    HEURISTIC,
    INSTANCES,
    LEARNT,
    MIXED,
    PHASE,
    REQUESTS,
    WARMUP,
    Contender,
    Outcome,
    Runs,
    Setting,
    mean_of,
    observe,
)
from reproductions.runs import percent, table
from reproductions.sections import Context, Section

H, LODESTAR = Contender(policy=HEURISTIC), Contender(policy=LEARNT)
OTHERS = (Contender(policy="min-ttft"), Contender(policy="fairlead"))
SKEWED = Setting()
HETEROGENEOUS = Setting(speeds=MIXED)
SETTINGS = (
    SKEWED,
    HETEROGENEOUS,
    Setting(kind="conversation"),
    Setting(kind="conversation", speeds=MIXED),
    Setting(preset="vllm-h100-8b", load=0.4, speeds=MIXED),
)
CLOSE_TO_SATURATION = tuple(
    Setting(preset=name, kind=kind, speeds=speeds, load=0.9)
    for name in ("dualmap-910b4-qwen7b", "vllm-h100-8b")
    for kind in ("tool-agent", "conversation")
    for speeds in ((1.0,), MIXED)
)
CHANGING = Setting(kind="changing", load=0.5)
CROWDED = Setting(preset="vllm-h100-8b", load=0.5)
SMALL_POOLS = (("recent_samples", 800.0), ("replay_samples", 800.0))
VARIANTS = (
    ("as configured", LODESTAR),
    ("tie-break within a tenth, as published", Contender(policy=LEARNT, parameters=(("near_best", 0.1), ("near_errors", 0.0)))),
    ("no tie-break, as the published rule acts", Contender(policy=LEARNT, parameters=(("near_errors", 0.0),))),
    ("whole pool to the heuristic, as published", Contender(policy=LEARNT, parameters=(("out_of_distribution", "pool"),))),
)
ON_TWO = ("filter_instances", 2.0)
FILTERS = (
    ("never (default)", LODESTAR),
    ("above 0.8 of KV memory, as published", Contender(policy=LEARNT, parameters=(ON_TWO,))),
    ("always", Contender(policy=LEARNT, parameters=(ON_TWO, ("filter_kv_usage", 0.0)))),
)
POOLS = tuple(
    (words, Contender(policy=LEARNT, parameters=(*SMALL_POOLS, ("selection", selection))))
    for words, selection in (("newest alone", "fifo"), ("published replay", "published"), ("corrected replay", "corrected"))
)


def write(context: Context) -> str:
    """Run the contenders and return the section's text."""
    main = observe(context, SETTINGS, (H, LODESTAR, *OTHERS))
    close = observe(context, CLOSE_TO_SATURATION, (H, LODESTAR))
    variants = observe(context, (SKEWED, HETEROGENEOUS), [one for _, one in VARIANTS])
    filters = observe(context, (CROWDED,), [H, *(one for _, one in FILTERS)])
    pools = observe(context, (CHANGING,), [H, *(one for _, one in POOLS)])
    return "\n\n".join(
        (claim(context), against_heuristic(main), close_to_saturation(close), parts(variants), k_filter(filters), two_pools(pools))
    )


def claim(context: Context) -> str:
    """Return the text about the published figures, and about these runs."""
    return f"""Lodestar's paper (arXiv 2606.00946) gives a mean TTFT 1.41 times and a P99 1.47 times better than its heuristic, here `{HEURISTIC}`, on
average, and up to 4.4 times on mixed accelerators, after about five minutes of learning.

**What was run.** {INSTANCES} instances, {REQUESTS:,} generated requests, the last {REQUESTS - WARMUP:,} measured: two rounds of 1,000 samples are over by
then, and three or four in all. *Mixed* pools have every second instance at half the speed, which nobody tells the router; the load is a share of the
saturation of what is there. Rounds take virtual time. Means of {context.seeds} seeds. A network's products are rounded as the processor does it, so
figures of `{LEARNT}` differ a little from one kind of machine to another, as between seeds."""


def against_heuristic(runs: Runs) -> str:
    """Return the main table and the text of its verdict."""
    rows = []
    for setting in SETTINGS:
        for contender in (H, LODESTAR, *OTHERS):
            outcomes = runs[setting, contender]
            learnt = contender is LODESTAR
            rows.append(
                (
                    setting.name,
                    contender.label,
                    *_times(outcomes),
                    percent(mean_of(outcomes, "hit_rate")),
                    percent(mean_of(outcomes, "on_fast")) if len(setting.speeds) > 1 else "–",
                    percent(mean_of(outcomes, "learnt")) if learnt else "–",
                    percent(mean_of(outcomes, "error")) if learnt else "–",
                )
            )
    heading = ("workload, pool, load", "", "mean, s", "P50", "P99", "hit rate", "computed by the fast", "by the model", "its error")
    return f"""### Against its heuristic

*Computed by the fast* is the share of the computed prompt tokens, *its error* the mean absolute error of predictions over the mean TTFT.

{table(heading, rows)}

{verdict(runs, SETTINGS, (H, LODESTAR, *OTHERS))}"""


def close_to_saturation(runs: Runs) -> str:
    """Return the same table at 0.9×, where a placement delays other requests most."""
    rows = [
        (
            setting.name,
            contender.label,
            *_times(runs[setting, contender]),
            percent(mean_of(runs[setting, contender], "refused")),
            percent(mean_of(runs[setting, contender], "hit_rate")),
            percent(mean_of(runs[setting, contender], "learnt")) if contender is LODESTAR else "–",
            percent(mean_of(runs[setting, contender], "error")) if contender is LODESTAR else "–",
        )
        for setting in CLOSE_TO_SATURATION
        for contender in (H, LODESTAR)
    ]
    heading = ("workload, pool, load", "", "mean, s", "P50", "P99", "refused", "hit rate", "by the model", "its error")
    return f"""### Close to saturation

TTFTs are of those served; *refused* are those that waited for a minute in a queue.

{table(heading, rows)}

{verdict(runs, CLOSE_TO_SATURATION, (H, LODESTAR))}"""


def verdict(runs: Runs, settings: Sequence[Setting], contenders: Sequence[Contender]) -> str:
    """Return the text about the settings in which Lodestar wins, and those in which it does not."""
    lines = []
    for setting in settings:
        learnt, plain = runs[setting, LODESTAR], runs[setting, H]
        means, tails = (mean_of(plain, figure) / mean_of(learnt, figure) for figure in ("mean", "p99"))
        won = "better in both" if min(means, tails) >= 1 else "within 2 %" if min(means, tails) >= 0.98 else "**not better in both**"
        best = min(contenders, key=lambda one: mean_of(runs[setting, one], "mean"))
        lines.append(f"- {setting.name}: mean {means:.2f} times better, P99 {tails:.2f} times; {won}. The shortest mean has {best.label}.")
    return "\n".join(lines)


def parts(runs: Runs) -> str:
    """Return the text about the cost or gain of the choices within the policy."""
    rows = [
        (words, setting.name, *_times(runs[setting, one]), percent(mean_of(runs[setting, one], "out_of_distribution")))
        for setting in (SKEWED, HETEROGENEOUS)
        for words, one in VARIANTS
    ]
    return f"""### Its parts

{table(("", "workload, pool, load", "mean, s", "P50", "P99", "out of distribution"), rows)}"""


def k_filter(runs: Runs) -> str:
    """Return the text about the K-filter where memory is short."""
    rows = [
        (words, *_times(runs[CROWDED, one]), percent(mean_of(runs[CROWDED, one], "hit_rate")))
        for words, one in (("the heuristic", H), *FILTERS)
    ]
    return f"""### The K-filter

{CROWDED.name}: the prefix cache is what running requests leave of the GPU's memory. The paper's ablation has a mean of 1.87 s with and 3.21 s without.

{table(("the filter acts", "mean, s", "P50", "P99", "hit rate"), rows)}"""


def two_pools(runs: Runs) -> str:
    """Return the text about replay of samples when the work changes and changes back."""
    rows = [
        (words, *_times(runs[CHANGING, one]), percent(mean_of(runs[CHANGING, one], "error")) if one.policy == LEARNT else "–")
        for words, one in (("the heuristic", H), *POOLS)
    ]
    return f"""### Newest samples and replay

{PHASE:,} requests of tool agents, as many of conversations, and again of tool agents, which are measured; 800 newest samples and 800 replayed. The
paper's ablation has a mean 2.39 times better with a replay than without.

{table(("", "mean, s", "P50", "P99", "error"), rows)}"""


def _times(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{mean_of(outcomes, figure):.2f}" for figure in ("mean", "p50", "p99")]


SECTION = Section(name="lodestar", title="Lodestar: a TTFT learnt online against its heuristic", write=write)
