"""Heimdall's benchmark: random routing against routing by the precise prefix index, with tenants that each have a long
prompt of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import matplotlib
from matplotlib.figure import Figure

from reproductions.heimdall_runs import (
    CONTENDERS,
    INSTANCES,
    KV_NOT_COUNTED,
    LARGE,
    LOAD_ONLY,
    MINMAX,
    ONE_AT_A_TIME,
    OURS,
    PERCENTS,
    PRECISE,
    RANDOM,
    SHAPE,
    SMALL,
    Observed,
    Setting,
    mean_of,
    observe,
    percentiles,
)
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context, Section

PUBLISHED = {RANDOM.label: (4.46, 9.29, 17.96), PRECISE.label: (0.22, 0.72, 1.11)}
"""The published TTFT in seconds at P50, P75 and P90."""
BIG = Setting(engine=LARGE, climb=1.0)
HALF = Setting(engine=SMALL, climb=0.5)
FULL = replace(HALF, climb=1.0)
QUIET_RATE = 4.0
WORST = Setting(engine=SMALL, climb=0.5, warmup_rate=QUIET_RATE, preamble=True)
ROOMY = replace(WORST, engine=LARGE)
COLD = (HALF, replace(HALF, preamble=True), replace(WORST, preamble=False), WORST, ROOMY)
COLD_CONTENDERS = (PRECISE, MINMAX, OURS, KV_NOT_COUNTED)
NAMED = (("192 GB, full climb", BIG), ("80 GB, half the climb", HALF))
PLOT = "heimdall-ttft.png"
Runs = Mapping[tuple[Setting, str], tuple[Observed, ...]]


def write(context: Context) -> str:
    """Run the contenders and return the section's text."""
    runs = {**observe(context, (BIG, HALF), CONTENDERS), **observe(context, (FULL,), (RANDOM, PRECISE))}
    cold = observe(context, COLD, COLD_CONTENDERS)
    plot(runs).savefig(context.image(PLOT), dpi=110, metadata={"Software": None})
    return "\n\n".join((claim(context, runs), against_random(runs), everyone(runs), cold_pool(cold), verdict(runs)))


def claim(context: Context, runs: Runs) -> str:
    """Return the text about the published figures, and about these runs."""
    low, high = HALF.climb * SHAPE.lowest_rate, HALF.climb * SHAPE.highest_rate
    whole, half = (percentiles(runs[setting, PRECISE.label])[2] for setting in (FULL, HALF))
    out = "runs out of KV memory on the way up even with precise routing" if whole > SMALL.slo_ttft_seconds else "has less KV memory"
    spare = (
        "takes with memory to spare, as the published P90 says of its own pool"
        if half < SMALL.slo_ttft_seconds
        else "does not take in time either"
    )
    return f"""Heimdall's documentation gives TTFTs for {INSTANCES} pods and {SHAPE.groups} groups of {SHAPE.prompts_per_group} prompts
({SHAPE.prefix_tokens:,} tokens shared by a group, {SHAPE.question_tokens:,} of the prompt's own, {SHAPE.output_tokens:,} of output): about twenty times
shorter at the median when requests are routed by the precise prefix index than at random. The first prompt of each group warms the pool up at
{SHAPE.warmup_rate:g} requests per second; then the others come at a rate that climbs from {SHAPE.lowest_rate:g} to {SHAPE.highest_rate:g}.

**What was run.** The same prompts, once each, those of the warm-up not measured; {context.seeds} seeds with other orders and arrivals; all figures
are means over them. The engines are not named closely enough to be copied. Two stand in: preset `{SMALL.name}` (an 8B model on 80 GB), and the same
with the KV memory that a GPU of 192 GB would leave ({LARGE.kv_tokens:,} tokens). The second takes the climb as published. The first
{out} ({SMALL.kv_tokens // 9500} requests of nine thousand tokens with their answers fit where nothing is
shared); so it is also given half of the climb ({low:g} to {high:g}), which `heimdall`
{spare}. The simulator keeps prefixes in blocks of 512 tokens, so 7,680 of the 8,000 shared tokens can be reused. Nothing waits in the router
(`prefillsInFlight` 0) except with `fairlead`, whose queues are half of the policy. *In time* is a TTFT below {SMALL.slo_ttft_seconds:g} s."""


def against_random(runs: Runs) -> str:
    """Return the published table beside ours."""
    rows = [("published", *_cells(PUBLISHED[RANDOM.label]), *_cells(PUBLISHED[PRECISE.label]), *_ratios(*PUBLISHED.values()))]
    for name, setting in (*NAMED, ("80 GB, full climb", FULL)):
        random, precise = _both(runs, setting)
        rows.append((name, *_cells(random), *_cells(precise), *_ratios(random, precise)))
    names = [f"{name} P{one}" for name in ("random", "precise", "ratio") for one in PERCENTS[:3]]
    return f"""### Random against precise

{table(["TTFT, s", *names], rows)}

![TTFT of served requests, random against precise]({IMAGES}/{PLOT})"""


def everyone(runs: Runs) -> str:
    """Return the table of all contenders on both engines."""
    parts = ["### Everyone"]
    for name, setting in NAMED:
        rows = [
            (f"`{one.label}`", *_cells(percentiles(runs[setting, one.label])), *_shares(runs[setting, one.label])) for one in CONTENDERS
        ]
        parts.append(table([f"{name}: TTFT, s", *(f"P{one}" for one in PERCENTS), "hit rate", "in time"], rows))
    load, minmax, precise, random = (mean_of(runs[BIG, one.label], "hit_rate") for one in (LOAD_ONLY, MINMAX, PRECISE, RANDOM))
    by_chance, balanced, indexed = (percentiles(runs[BIG, one.label])[0] for one in (RANDOM, LOAD_ONLY, PRECISE))
    better = "it balances better than chance but hits" if balanced < by_chance else "it balances no better than chance and hits"
    gained = 1 - (by_chance - balanced) / (by_chance - indexed) if by_chance > indexed else 0.0
    share = "nearly all" if gained > 0.8 else f"{max(0.0, gained):.0%}"
    one, several = (percentiles(runs[BIG, each.label])[2] for each in (ONE_AT_A_TIME, OURS))
    turns = (
        "would be the limit at the top of the climb and not the engine"
        if one > several
        else "might be expected to be the limit at the top of the climb, and are not"
    )
    alike = "choose alike here" if abs(minmax - precise) < 0.005 else "differ even here"
    parts.append(f"""`heimdall, load only` has `prefix_weight` 0: {better} {percent(load)}, against {percent(random)} at random
and {percent(precise)} with the index, so {share} of the gain is the index's. The absolute and the min-max score {alike}: who holds a group's prefix holds
all of it and nobody else holds anything, so the match counts 2.65 in one and 3 in the other, against the same queues.

What a hit leaves to compute, 1,320 tokens, is a sixth of what these engines take in one step. If `fairlead` sent them one at a time, the turns
{turns}: P90 is {one:.2f} s so (`in_flight_seconds` 0), and {several:.2f} s as configured, where short prefills are
sent while less than 0.07 s of work is in flight.""")
    return "\n\n".join(parts)


def cold_pool(cold: Runs) -> str:
    """Return the text about the situations in which the two prefix scores differ."""
    rows = [
        (
            f"{_memory(setting)}, {setting.warmup_rate:g}/s, {'common block' if setting.preamble else 'nothing common'}",
            f"`{one.label}`",
            percent(mean_of(cold[setting, one.label], "busiest")),
            *_cells([percentiles(cold[setting, one.label])[index] for index in (0, 2)]),
            *_shares(cold[setting, one.label]),
        )
        for setting in COLD
        for one in COLD_CONTENDERS
    ]
    absolute, minmax, ours, not_counted = (mean_of(cold[WORST, one.label], "attainment") for one in COLD_CONTENDERS)
    roomy = mean_of(cold[ROOMY, MINMAX.label], "attainment")
    published, quiet = (mean_of(cold[one, MINMAX.label], "busiest") for one in (replace(HALF, preamble=True), WORST))
    if quiet > 1.5 * published and minmax < absolute - 0.02:
        came = f"""At {SHAPE.warmup_rate:g}/s
nothing happens, because every instance has been given a prompt before the first one answers; the quiet warm-up is the bad one. The damage stays, as groups
return to where they were first put: under the climb the fullest instances run out of KV memory, and {percent(minmax)} are in time, against
{percent(absolute)} by the absolute score. With 192 GB, where memory does not run out, the same misplacement leaves {percent(roomy)} in time."""
    else:
        came = f"""Here that
does no harm: the fullest instance gets {percent(quiet)} of the groups in the quiet warm-up, {percent(published)} at {SHAPE.warmup_rate:g}/s, and
{percent(minmax)} are in time, against {percent(absolute)} by the absolute score."""
    return f"""### Where the min-max score goes wrong: a cold pool

The same groups at half the climb, after the published warm-up or a quiet one ({QUIET_RATE:g} requests per second), and with prompts that have nothing in
common between groups or the first block, as when all tenants' prompts begin with the same 512 tokens. *Busiest* is the share of the groups that the fullest
instance got in the warm-up; {percent(1 / INSTANCES)} would be even.

{table(["engine, warm-up, prompts", "", "busiest", "P50, s", "P90, s", "hit rate", "in time"], rows)}

Min-max asks who matches most, not how much. After the first answer one instance holds the common block, and for every new group it scores the full 3 where
others score 0, as if it held the whole prompt. The shortest queue is worth 2 and a free KV cache 2, so it takes the group whenever no queue is shorter than
its own, and with the longest queue still until half of its KV memory is in use. The absolute score gives the same match 3/17.
{came}

{ours_when_cold(ours, absolute, not_counted)}"""


def ours_when_cold(ours: float, absolute: float, not_counted: float) -> str:
    """Return the text about the measured effect of the cold pool on `fairlead`."""
    apart = ours > absolute - 0.02
    outcome = "is not drawn in" if apart else "is drawn in too"
    keeps = "what keeps the groups apart is" if apart else "what should keep the groups apart is"
    return f"""`fairlead` {outcome} ({percent(ours)} in time). On an idle pool the instance with the block is the fastest by 512 tokens;
{keeps} that used KV memory counts for a little waiting. Without that (`kv_seconds` 0), {percent(not_counted)} are in time."""


def verdict(runs: Runs) -> str:
    """Return the text about what reproduces and what does not."""
    lines = ["### What reproduces", ""]
    published = _factors(*PUBLISHED.values())
    for name, setting in NAMED:
        factors = _factors(*_both(runs, setting))
        lines.append(
            f"- **{verdict_on(factors, published)}** ({name}): the first token comes {' / '.join(f'{one:.0f}' for one in factors)} times sooner with precise "
            f"routing at P50 / P75 / P90; published were {' / '.join(f'{one:.0f}' for one in published)}."
        )
    random, precise = _both(runs, BIG)
    low, high = _spread(random, PUBLISHED[RANDOM.label])
    fast, slow = _spread(precise, PUBLISHED[PRECISE.label])
    near = min(low, fast) >= 1 / 3 and max(high, slow) <= 3
    luck = "agreement within a factor of three is partly luck" if near else "seconds need not agree"
    lines.append(f"""- **Seconds.** With 192 GB, nothing fitted, random routing has {low:.2f} to {high:.2f} of the published TTFTs and precise routing
  {fast:.2f} to {slow:.2f}. The simulator leaves out tokenizing nine thousand tokens, the network and the gateway, which weigh most where
  the rest is short; that may explain part of the difference. Model and hardware are guesses, so {luck}.""")
    half = percentiles(runs[HALF, RANDOM.label])
    if half[0] > 2 * PUBLISHED[RANDOM.label][0]:
        lines.append(f"""- **The shape differs with 80 GB.** Random routing copies prefixes to many instances until KV memory is full; from then on requests
  wait for decodes to end (P50 {half[0]:.1f} s, P90 {half[2]:.1f} s), which the published percentiles show no sign of. They look like waits for
  prefills, as with 192 GB.""")
    return "\n".join(lines)


def plot(runs: Runs) -> Figure:
    """Return a picture of the distributions of TTFT over all seeds, with crosses for the published figures."""
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        styles = {
            RANDOM.label: ("#d55e00", "o", "-"),
            LOAD_ONLY.label: ("#e69f00", "^", ":"),
            PRECISE.label: ("#0072b2", "s", "-"),
            OURS.label: ("#009e73", "D", "--"),
        }
        for axes, setting, name in zip(panels, (BIG, HALF), ("192 GB, 3 to 100/s", "80 GB, half of it"), strict=True):
            for label, (colour, marker, line) in styles.items():
                ttft = sorted(one for run in runs[setting, label] for one in run.ttft)
                shares = [100 * (rank + 1) / len(ttft) for rank in range(len(ttft))]
                axes.plot(
                    ttft, shares, color=colour, marker=marker, markevery=0.1, markersize=4, linestyle=line, linewidth=1.3, label=label
                )
            axes.set(xscale="log", xlabel="TTFT, s", title=name, ylim=(0, 102))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.axvline(setting.engine.slo_ttft_seconds, color="grey", linewidth=0.7, linestyle=":")
            axes.grid(which="major", linewidth=0.3)
        for label, seconds in PUBLISHED.items():
            panels[0].plot(
                seconds, PERCENTS[:3], color=styles[label][0], marker="x", markersize=8, linestyle="none", label=f"{label}, published"
            )
        panels[0].set_ylabel("requests at most so slow, %")
        panels[0].legend(fontsize=7, loc="lower right")
    return figure


def verdict_on(factors: Sequence[float], published: Sequence[float]) -> str:
    """Return the verdict in words. Factors agree if they differ at most by a factor of three."""
    if min(factors) <= 1:
        return "Does not reproduce"
    if all(1 / 3 <= ours / theirs <= 3 for ours, theirs in zip(factors, published, strict=True)):
        return "Reproduces"
    return "The direction reproduces, the factor does not"


def _both(runs: Runs, setting: Setting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the TTFTs at P50 to P90 of random and of precise routing, in seconds."""
    random, precise = (percentiles(runs[setting, label])[:3] for label in PUBLISHED)
    return random, precise


def _memory(setting: Setting) -> str:
    return "192 GB" if setting.engine is LARGE else "80 GB"


def _cells(seconds: Iterable[float]) -> list[str]:
    return [f"{one:.2f}" for one in seconds]


def _shares(runs: Sequence[Observed]) -> list[str]:
    return [percent(mean_of(runs, "hit_rate")), percent(mean_of(runs, "attainment"))]


def _ratios(random: Sequence[float], precise: Sequence[float]) -> list[str]:
    return [f"{one:.0f}" for one in _factors(random, precise)]


def _factors(random: Sequence[float], precise: Sequence[float]) -> list[float]:
    """Return the ratios of the TTFT of random routing to that of precise routing."""
    return [slow / fast for slow, fast in zip(random, precise, strict=True)]


def _spread(measured: Sequence[float], published: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and the largest ratio of measured to published values."""
    ratios = [ours / theirs for ours, theirs in zip(measured, published, strict=True)]
    return min(ratios), max(ratios)


SECTION = Section(name="heimdall", title="Heimdall: random against precise prefix routing", write=write)
