"""EAR against affinity alone, balance alone, and neither of them, in open and closed loop."""

from collections.abc import Sequence
from dataclasses import replace

from reproductions.ear_plots import plot_instances, plot_rates
from reproductions.ear_runs import (
    INSTANCES,
    PRESET,
    SLO_SECONDS,
    Outcome,
    Variant,
    ceiling,
    mean_figure,
    run_all,
    settings_for,
    size_of,
)
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context

ROUND_ROBIN = Variant(label="round-robin", policy="round-robin")
LEAST_LOADED = Variant(label="least-loaded", policy="least-loaded")
STICKY = Variant(label="sticky", policy="sticky")
AFFINITY = Variant(label="ear, affinity only", policy="ear", parameters={"migrate": False})
EAR = Variant(label="ear", policy="ear")
ALWAYS = Variant(label="ear, T_hot = T_cool = 0", policy="ear", parameters={"hot_tokens": 0, "cooldown_seconds": 0.0, "cool_target": False})
OURS = Variant(label="fairlead", policy="fairlead")
COMPARED = (ROUND_ROBIN, LEAST_LOADED, STICKY, AFFINITY, EAR, ALWAYS, OURS)
"""The policies that are run at every rate."""
DRAFT_TARGET = Variant(label="ear, draft's target rule", policy="ear", parameters={"cool_target": False})
EAR_RECOMPUTING = replace(EAR, label="ear, recomputing", fetching=False)
ALWAYS_RECOMPUTING = replace(ALWAYS, label="ear, T_hot = T_cool = 0, recomputing", fetching=False)
ABLATIONS = (DRAFT_TARGET, EAR_RECOMPUTING, ALWAYS_RECOMPUTING)
"""The policies that are run only at the rate of the tables."""

FEW_MOVES = 0.1
"""The migrations per session below which the text says that few sessions move."""
ALIKE = 0.1
"""The relative difference of two P90s up to which they count as equal."""
RATES = (2.0, 2.5, 3.0, 3.5, 4.0)
TABLE_RATE = 3.5


def write_policies(context: Context) -> str:
    """Run the policies; return the text with two tables, two plots and verdicts."""
    rates = (TABLE_RATE,) if context.quick else RATES
    found = run_all(context, "ear", [*settings_for(context, COMPARED, rates), *settings_for(context, ABLATIONS, (TABLE_RATE,))])
    at_table = [one for one in found if one.setting.rate == TABLE_RATE]
    plot_rates(context.image("ear-rates.png"), [one for one in found if one.setting.variant in COMPARED], [one.label for one in COMPARED])
    plot_instances(context.image("ear-instances.png"), at_table, [one.label for one in COMPARED])
    beyond = sum(one.beyond_bound for one in found)
    refused = sum(one.figures.requests - one.figures.served for one in found)
    most = max((one.moves_most for one in found if one.setting.variant in (EAR, DRAFT_TARGET, EAR_RECOMPUTING)), default=0)
    return f"""{_setup(context)}

**Open loop** (turns come at the trace's times, whether or not the one before has ended) at {TABLE_RATE:g} requests per second:

{_table(_of(at_table, closed_loop=False))}

**Closed loop** (a turn comes when the one before has ended and the tool has run) with sessions beginning at the same rate:

{_table(_of(at_table, closed_loop=True), amplified=True)}

P90 is the mean over seeds, with the lowest and highest seed in brackets; attainment is TTFT below {SLO_SECONDS:g} s. Instances: P90 of TTFT of the requests
each instance served, of the median (the upper of two) and of the worst instance. The *hotspot index* is the worst over the median, run by run. The draft's
table says 13.65 for sticky routing and its text 2.73; the latter is this quotient of the two absolute values it gives (55.4 s over 20.3 s), and it is the
absolute values that should be compared. Amplification is the wall-clock span of a closed loop over the span of the trace's stamps. Requests not served in
all these runs: {refused}.

![P90 of TTFT and hit rate against rate]({IMAGES}/ear-rates.png)

![P90 of TTFT of every instance]({IMAGES}/ear-instances.png)

{_verdicts(at_table)}

**Migrations.** No session may move more often than 1 + lifetime / T_cool. Sessions that did, over all runs of `ear` with a cooldown (no other
policy here has one): {beyond}. The session that moved most did so {most} times.

**The default policy.** `fairlead`, without its queues as everything is sent at once here, is not part of the draft's comparison; it is in the tables for who
has to choose. {_beside(at_table)}

{_ablations(at_table)}"""


def _beside(at_table: Sequence[Outcome]) -> str:
    """Return the text that compares ours with `ear`, with its default thresholds and with its best."""
    lines = []
    for closed in (False, True):
        found = _of(at_table, closed_loop=closed)
        ours, ear, always = (mean_figure(found[one.label], lambda run: run.figures.ttft_p90) for one in (OURS, EAR, ALWAYS))
        lines.append(
            f"{'closed' if closed else 'open'} loop {ours:.2f} s against {ear:.2f} s of `ear` and {always:.2f} s of `ear` without thresholds"
        )
    return f"Its P90 of TTFT: {'; '.join(lines)}."


def _of(found: Sequence[Outcome], *, closed_loop: bool) -> dict[str, list[Outcome]]:
    """Return the outcomes of a loop by label, in the order of the runs."""
    by_label: dict[str, list[Outcome]] = {}
    for one in found:
        if one.setting.closed_loop == closed_loop:
            by_label.setdefault(one.setting.variant.label, []).append(one)
    return by_label


def _table(by_label: dict[str, list[Outcome]], *, amplified: bool = False) -> str:
    heading = [
        "",
        "TTFT P50",
        "P90",
        "P99",
        "E2E P50",
        "P90",
        "hits",
        "attained",
        "instances' P90: median",
        "worst",
        "index",
        "moves/session",
    ]
    if amplified:
        heading.append("amplification")
    rows: list[list[str]] = []
    for label, same in by_label.items():
        tails = sorted(one.figures.ttft_p90 or 0.0 for one in same)
        row = [
            f"`{label}`" if "," not in label else f"`{label.split(',')[0]}`,{label.split(',', 1)[1]}",
            f"{mean_figure(same, lambda one: one.figures.ttft_p50):.2f} s",
            f"{mean_figure(same, lambda one: one.figures.ttft_p90):.2f} s ({tails[0]:.1f}-{tails[-1]:.1f})",
            f"{mean_figure(same, lambda one: one.figures.ttft_p99):.1f} s",
            f"{mean_figure(same, lambda one: one.figures.e2e_p50):.1f} s",
            f"{mean_figure(same, lambda one: one.figures.e2e_p90):.1f} s",
            percent(mean_figure(same, lambda one: one.figures.hit_rate)),
            percent(mean_figure(same, lambda one: one.figures.attainment)),
            f"{mean_figure(same, lambda one: one.tails[len(one.tails) // 2]):.2f} s",
            f"{mean_figure(same, lambda one: one.tails[-1]):.2f} s",
            f"{mean_figure(same, lambda one: one.hotspot_index):.1f}",
            f"{mean_figure(same, lambda one: one.moves_mean):.2f}",
        ]
        rows.append([*row, f"{mean_figure(same, lambda one: one.amplification):.2f}"] if amplified else row)
    return table(heading, rows)


def _setup(context: Context) -> str:
    requests, settled = size_of(context)
    bound = ceiling(TABLE_RATE, 0, requests, settled)
    decoding = bound.decode_seconds / (bound.decode_seconds + bound.prefill_seconds)
    bandwidth = PRESET.transfer.bytes_per_second / 1e9
    return f"""{INSTANCES} instances of preset `{PRESET.name}` ({PRESET.kv_tokens:,} tokens of KV memory each, which holds the prefix cache too; a
session's context is at most 120,000), every request sent at once, early rejection disabled, TTFT target {SLO_SECONDS:g} s, so that T_hot is the prompt
tokens computed in {SLO_SECONDS:g} s, and T_cool 30 s. Migrating sessions fetch their blocks at {bandwidth:g} GB/s. Sessions have settled when a
run begins; a quarter of the {requests:,} requests fills the caches and is not measured; {context.seeds} seeds, of the trace as well. An endless
shared cache and the largest batches would let the pool take {bound.requests_per_second:.1f} requests per second; decoding, which no cache saves, is
{decoding:.0%} of that work."""


def _verdicts(found: Sequence[Outcome]) -> str:
    lines: list[str] = []
    for closed in (False, True):
        by = _of(found, closed_loop=closed)
        sticky, balanced, affine, ear = (by[variant.label] for variant in (STICKY, LEAST_LOADED, AFFINITY, EAR))

        def p90(same: Sequence[Outcome]) -> float:
            return mean_figure(same, lambda one: one.figures.ttft_p90)

        def worst(same: Sequence[Outcome]) -> float:
            return mean_figure(same, lambda one: one.tails[-1])

        def hits(same: Sequence[Outcome]) -> float:
            return mean_figure(same, lambda one: one.figures.hit_rate)

        def middle(same: Sequence[Outcome]) -> float:
            return mean_figure(same, lambda one: one.tails[len(one.tails) // 2])

        hot = worst(sticky) > 2 * middle(sticky)
        lost = hits(balanced) < 0.5 * hits(sticky)
        kept = hits(ear) > hits(sticky) - 0.02
        cooled = worst(ear) < 0.5 * worst(sticky)
        best = p90(ear) < min(p90(sticky), p90(balanced), p90(affine))
        lines.append(
            f"""| {"closed" if closed else "open"} loop | {_yes(hot)}: {worst(sticky):.1f} s against {middle(sticky):.1f} s | """
            f"""{_yes(lost)}: {percent(hits(balanced))} against {percent(hits(sticky))} | {_yes(kept)}: {percent(hits(ear))} | """
            f"""{_yes(cooled)}: {worst(ear):.1f} s | {_yes(best)}: {p90(ear):.2f} s against {p90(affine):.2f} s without migration |"""
        )
    heading = (
        "| | sticky has hotspots (worst against median instance) | balance loses the cache (hits against sticky's) "
        "| `ear` keeps the hits | `ear` removes the hotspot (worst instance) | lowest P90 of these four |"
    )
    return "\n".join(["Claims of the draft, from the tables:", "", heading, "|---|---|---|---|---|---|", *lines])


def _yes(true: bool) -> str:
    return "reproduces" if true else "does not reproduce"


def _ablations(found: Sequence[Outcome]) -> str:
    by = _of(found, closed_loop=False)

    def worst(variant: Variant) -> float:
        return mean_figure(by[variant.label], lambda one: one.tails[-1])

    def p90(variant: Variant) -> float:
        return mean_figure(by[variant.label], lambda one: one.figures.ttft_p90)

    share = 1 - worst(AFFINITY) / worst(STICKY) if worst(STICKY) else 0.0
    eager = p90(ALWAYS) < p90(EAR)
    fetching = PRESET.transfer.seconds(33_600, 0)
    waiting = f". Fetching a mean context takes {fetching:.2f} s here: too little to wait until a host is hot" if eager else ""
    moves = mean_figure(by[EAR_RECOMPUTING.label], lambda one: one.moves_mean)
    few = ", few of whose sessions move" if moves < FEW_MOVES else f", with {moves:.2f} moves a session"
    target = p90(DRAFT_TARGET)
    alike = (
        ": the rules differ only when all hosts are hot, which is rare at this rate" if abs(target - p90(EAR)) <= ALIKE * p90(EAR) else ""
    )
    binding = f"already takes {share:.0%} off" if share > 0 else f"adds {-share:.0%} to"
    return f"""**What does it.** In the open loop, binding new sessions to the least loaded instance instead of hashing them (`ear`, affinity only,
against `sticky`) {binding} the worst instance's P90; migration takes it from {worst(AFFINITY):.1f} s to {worst(EAR):.1f} s.
"Migration only", the draft's other ablation, cannot be written in these parameters: with T_hot = T_cool = 0 a session still stays while nothing is
pending where it is. That variant has a {"lower" if eager else "higher"} P90 than `ear` with its thresholds ({p90(ALWAYS):.2f} s against
{p90(EAR):.2f} s){waiting}. Where contexts are computed again instead of fetched, it has {p90(ALWAYS_RECOMPUTING):.2f} s, and `ear`
{p90(EAR_RECOMPUTING):.2f} s{few}. The draft's rule for the target, any instance with less
pending, gives {target:.2f} s{alike}."""
