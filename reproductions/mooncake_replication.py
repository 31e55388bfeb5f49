"""Hot-spot replication: TTFT, hits and fetched tokens for several thresholds theta.

They are compared with load balancing and with cache-awareness alone.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from reproductions.mooncake_runs import ENGINE, PREFILL_INSTANCES, Outcome, Trial, average
from reproductions.runs import percent, table
from reproductions.sections import Context

DECODE_INSTANCES = 8
RATES = (8.0, 10.0, 12.0)
CONTENDERS: dict[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "random": ("random", ()),
    "load balancing (`least-loaded`)": ("least-loaded", ()),
    "cache-aware (θ = ∞)": ("mooncake", (("preset", "mooncake-cache-aware"),)),
    "cache-centric, θ = 4": ("mooncake", (("theta", 4.0),)),
    "cache-centric, θ = 2": ("mooncake", (("theta", 2.0),)),
    "cache-centric, θ = 1.5": ("mooncake", (("theta", 1.5),)),
    "cache-centric, θ = 1.25": ("mooncake", (("theta", 1.25),)),
}
PLOTTED = ("random", "load balancing (`least-loaded`)", "cache-aware (θ = ∞)", "cache-centric, θ = 2")


def trials(context: Context) -> list[Trial]:
    """Return the trials of every contender, rate and seed. In them no request is refused early."""
    return [
        Trial(decode_instances=DECODE_INSTANCES, rate=rate, policy=policy, parameters=parameters, seed=seed)
        for rate in (RATES[:1] if context.quick else RATES)
        for policy, parameters in CONTENDERS.values()
        for seed in range(context.seeds)
    ]


def describe(context: Context, outcomes: Sequence[Outcome]) -> str:
    """Return the part on replication as Markdown, and write its plot."""
    rates = sorted({outcome.trial.rate for outcome in outcomes})
    by_name = {name: {rate: _of(outcomes, name, rate) for rate in rates} for name in CONTENDERS}
    _plot(by_name, context.image("mooncake-replication.png"))
    rows = [_row(name, rate, by_name[name][rate]) for rate in rates for name in CONTENDERS]
    order = ("random", "load balancing (`least-loaded`)", "cache-aware (θ = ∞)", "cache-centric, θ = 2")
    verdicts = []
    for rate in rates:
        means = [ttft(by_name[name][rate]) for name in order]
        holds = all(before > after for before, after in pairwise(means))
        verdicts.append(
            f"- {rate:g}/s: {', '.join(f'{value:.2f} s' for value in means)}: {'**reproduced**' if holds else '**not reproduced in full**'}."
        )
    thetas = [name for name in CONTENDERS if name.startswith("cache-centric")]
    last = [ttft(by_name[name][rates[-1]]) for name in thetas]
    apart = max(last) / min(last) - 1 if min(last) > 0 else 0.0
    requests = outcomes[0].figures.requests
    link, speed = ENGINE.transfer.bytes_per_second / ENGINE.transfer.bytes_per_token, 1 / ENGINE.prefill.per_token
    matters = "hardly matters" if apart < 0.1 else "matters"
    faster = "fetching is always the faster" if link > speed else "fetching is not always the faster"
    guess = (
        """
And presumably (this was not measured) an instance has either next to nothing of a conversation or nearly all of it, so that any threshold from 1.25 to
4 decides alike."""
        if apart < 0.1
        else ""
    )
    heading = ("policy", "requests/s", "TTFT mean", "TTFT P90", "hit rate", "of ideal", "fetched, M tokens", "lost in queue")
    return f"""### Replicating hot prefixes

**Claim** (§6.1, Figure 8): mean TTFT falls from random to load balancing to cache-aware to cache-centric scheduling, where the last also replicates
prefixes found much better elsewhere; the threshold θ is set by hand.

**Run.** {PREFILL_INSTANCES}P+{DECODE_INSTANCES}D, the first {requests:,} requests of the trace with the same seeds, no early rejection, θ from 1.25 to ∞.
"Fetched" is what went between prefill instances. "Lost in queue" waited a minute, the router's limit. TTFT is of served requests.

{table(heading, rows)}

![TTFT by policy](images/benchmarks/mooncake-replication.png)

In the order random, load balancing, cache-aware, θ = 2, mean TTFT was:

{chr(10).join(verdicts)}

θ {matters} here: at {rates[-1]:g}/s the largest mean TTFT of the finite ones is {apart:.1%} above the smallest. The link moves
{link:,.0f} tokens a second, a prefill computes about {speed:,.0f}: {faster}.{guess}"""


def ttft(outcomes: Sequence[Outcome]) -> float:
    """Return the mean TTFT in seconds over requests and seeds."""
    return average([outcome.ttft_mean for outcome in outcomes])


def _of(outcomes: Sequence[Outcome], name: str, rate: float) -> list[Outcome]:
    policy, parameters = CONTENDERS[name]
    return [one for one in outcomes if (one.trial.policy, one.trial.parameters, one.trial.rate) == (policy, parameters, rate)]


def _row(name: str, rate: float, found: Sequence[Outcome]) -> tuple[str, ...]:
    hits, ideal = (average([getattr(one.figures, figure) for one in found]) for figure in ("hit_rate", "ideal_hit_rate"))
    return (
        name,
        f"{rate:g}",
        f"{ttft(found):.2f} s",
        f"{average([one.figures.ttft_p90 or 0.0 for one in found]):.1f} s",
        percent(hits),
        f"{hits / ideal:.0%}" if ideal else "-",
        f"{average([one.fetched_tokens for one in found]) / 1e6:.1f}",
        percent(average([one.figures.rejected_share for one in found])),
    )


def _plot(by_name: dict[str, dict[float, list[Outcome]]], path: Path) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours, markers = ("#999999", "#e69f00", "#0072b2", "#d55e00"), "osD^"
    for number, name in enumerate(PLOTTED):
        rates = list(by_name[name])
        style = {"color": colours[number], "marker": markers[number], "label": name.replace("`", ""), "linewidth": 1.2}
        left.plot(rates, [ttft(by_name[name][rate]) for rate in rates], **style)
        right.plot(rates, [100 * average([one.figures.hit_rate for one in by_name[name][rate]]) for rate in rates], **style)
    left.set(xlabel="requests per second", ylabel="mean TTFT of served requests, s", yscale="log")
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("")
    right.set(xlabel="requests per second", ylabel="hit rate, % of prompt tokens", ylim=(0, None))
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
