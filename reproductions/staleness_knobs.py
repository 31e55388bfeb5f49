"""The smaller questions of the section on stale and wrong observations: source of the loads, noise, bursts, cache
sizes.
"""

from dataclasses import replace
from math import exp

from reproductions.runs import percent, table
from reproductions.staleness_figures import hits, in_time, lost, points, ttft
from reproductions.staleness_runs import (
    BELIEFS,
    CHOOSERS,
    DELAYS,
    LATE,
    LOADS,
    NOISES,
    POLICIES,
    PRESET,
    SMALL_CACHE,
    SOURCES,
    Runs,
    Trial,
)


def sources(runs: Runs) -> str:
    """Return the text that compares the router's own counters with the engines' reports."""
    rows = [
        (
            name,
            *(percent(in_time(runs, replace(one, delay=delay))) for delay in DELAYS),
            *(f"{ttft(runs, replace(one, delay=delay)):.2f}" for delay in DELAYS),
        )
        for name, one in SOURCES.items()
    ]
    queue, kv, both, everything = (SOURCES[name] for name in ("queue", "KV use", "KV use and prefix", "all three"))
    harmless = (
        in_time(runs, everything) >= in_time(runs, SOURCES["queue and prefix"]) - 0.01 and lost(runs, everything) < lost(runs, kv) / 2
    )
    harm = "does no harm" if harmless else "does less" if lost(runs, everything) < lost(runs, both) else "does no less"
    names = [*(f"in time, {delay:g} s" for delay in DELAYS), *(f"P90, {delay:g} s" for delay in DELAYS)]
    return f"""### Whose word: own counters or the engines'

`heimdall`'s three scores by themselves, at {LOADS[0]:g}×. Queues and prefixes are this router's own knowledge here (an endpoint picker that scrapes
`num_requests_waiting` would have the engines' word for queues as well); KV use is read from the engines once a second.

{table(["goes by", *names], rows)}

By its own count of the queues alone the router serves {percent(in_time(runs, queue))} in time and loses {points(lost(runs, queue))} at {LATE:g} s. By
the engines' KV use alone it serves {percent(in_time(runs, kv))} even without delay, as everything that comes within a second goes where memory was
free when last read, and loses {points(lost(runs, kv))}. With the prefix score beside it that becomes {percent(in_time(runs, both))} and
{points(lost(runs, both))}; beside an own count of the queues the same reading {harm} ({percent(in_time(runs, everything))},
{points(lost(runs, everything))})."""


def noise(runs: Runs) -> str:
    """Return the text about wrong prompt lengths."""
    trials_shown = [(f"`{policy}`", Trial(policy=policy)) for policy in POLICIES]
    trials_shown.append((f"`fairlead`, 1 in flight, {LOADS[1]:g}×", Trial(policy="fairlead", load=LOADS[1], in_flight=1)))
    rows = [
        (
            name,
            *(percent(in_time(runs, replace(one, noise=sigma))) for sigma in NOISES),
            *(f"{ttft(runs, replace(one, noise=sigma)):.2f}" for sigma in NOISES),
            *(percent(hits(runs, replace(one, noise=sigma))) for sigma in (0.0, NOISES[-1])),
        )
        for name, one in trials_shown
    ]
    names = [
        *(f"in time, σ {sigma:g}" for sigma in NOISES),
        *(f"P90, σ {sigma:g}" for sigma in NOISES),
        "hits, σ 0",
        f"hits, σ {NOISES[-1]:g}",
    ]
    most = max(in_time(runs, Trial(policy=policy)) - in_time(runs, Trial(policy=policy, noise=NOISES[-1])) for policy in CHOOSERS)
    ordered = trials_shown[-1][1]
    unordered = replace(ordered, in_flight=0)
    wrong = exp(0.6745 * NOISES[-1])  # the quartiles of a normal distribution
    return f"""### Wrong lengths

{table([f"{LOADS[0]:g}×", *names], rows)}

At a sigma of {NOISES[-1]:g} half of the lengths told are wrong by more than a factor of {wrong:.1f}, and the choice loses {points(most)} at most.
Errors of single prompts cancel in the sum that is pending on an instance, and each leaves it again with its request. What goes by single lengths is
the *order* of a queue: past its capacity `fairlead` loses {points(in_time(runs, ordered) - in_time(runs, replace(ordered, noise=NOISES[-1])))}, and
keeps {percent(in_time(runs, replace(ordered, noise=NOISES[-1])))} in time where the engines' own order leaves {percent(in_time(runs, unordered))}
(`prefillsInFlight` 0)."""


def bursts(runs: Runs) -> str:
    """Return the text about requests with equal timestamps that arrive at once."""
    kinds = [("random", 0.0), ("none", 0.0), ("random", LATE), ("none", LATE)]
    rows = []
    for policy in POLICIES:
        four = [Trial(policy=policy, delay=delay, spread="none" if spread == "none" else "random") for spread, delay in kinds]
        rows.append((f"`{policy}`", *(percent(in_time(runs, one)) for one in four), *(f"{ttft(runs, one):.2f}" for one in four)))
    names = [f"{'at once' if spread == 'none' else 'spread'}, {delay:g} s" for spread, delay in kinds]
    extra = {policy: in_time(runs, Trial(policy=policy)) - in_time(runs, Trial(policy=policy, spread="none")) for policy in CHOOSERS}
    worst = max(extra, key=extra.__getitem__)
    return f"""### Bursts

The trace stamps its requests every three seconds. Everywhere else in this section they are spread over the gap to the next stamp; here rows of equal
stamps also come at the same instant.

{table([f"{LOADS[0]:g}×", *(f"in time, {name}" for name in names), *(f"P90, {name}" for name in names)], rows)}

Bursts cost `{worst}` most ({points(extra[worst])}). Each member of a burst is counted before the
next one is placed, in the same event, so that they do not herd. A scheduler that reads counters, scores and adds in separate steps would not have
that, and neither have several routers."""


def beliefs(runs: Runs) -> str:
    """Return the text about wrongly assumed cache sizes."""
    rows = []
    for policy in CHOOSERS:
        ones = [Trial(policy=policy, cache=SMALL_CACHE, believed=believed) for believed in BELIEFS]
        rows.append((f"`{policy}`", *(percent(in_time(runs, one)) for one in ones), *(percent(hits(runs, one)) for one in ones)))
    names = [f"{believed:g}×" for believed in BELIEFS]

    def loss(policy: str, believed: float) -> float:
        right, wrong = (Trial(policy=policy, cache=SMALL_CACHE, believed=one) for one in (1.0, believed))
        return hits(runs, right) - hits(runs, wrong)

    def late(policy: str, believed: float) -> float:
        right, wrong = (Trial(policy=policy, cache=SMALL_CACHE, believed=one) for one in (1.0, believed))
        return in_time(runs, right) - in_time(runs, wrong)

    small = {policy: loss(policy, BELIEFS[0]) for policy in CHOOSERS}
    firm = [policy for policy in CHOOSERS if small[policy] < 0.03]
    firm_ones = (" and ".join(f"`{policy}`" for policy in firm) or "Nobody") + " keep their hits with too small a belief"
    fooled = max(CHOOSERS, key=lambda policy: late(policy, BELIEFS[-1]))
    starved = max(CHOOSERS, key=lambda policy: late(policy, BELIEFS[0]))
    advice = "set it too large rather than too small" if late(fooled, BELIEFS[-1]) < late(starved, BELIEFS[0]) else "set it too small"
    large = max(loss(policy, BELIEFS[-1]) for policy in CHOOSERS)
    return f"""### Wrong cache sizes

Caches of {SMALL_CACHE * PRESET.cache_tokens:,.0f} tokens ({
        SMALL_CACHE:g} of the preset's, so that they overflow), taken by the router for so many times that
(`kvCacheTokens`), at {LOADS[0]:g}×.

{table(["", *(f"in time, {name}" for name in names), *(f"hits, {name}" for name in names)], rows)}

Too small a belief costs up to {points(max(small.values()))} of hits, as the index forgets what engines still hold; too large a one at most
{points(large)}. But hits that are promised and not there make an instance seem less loaded than it is: with {BELIEFS[-1]:g} times the cache
`{fooled}` loses {points(late(fooled, BELIEFS[-1]))} in time, with {BELIEFS[0]:g} times `{starved}` loses {
        points(late(starved, BELIEFS[0]))
    }. When in
doubt, {advice}. {firm_ones}: where sessions have a known home, the index is not the only thing that leads a turn back to it."""
