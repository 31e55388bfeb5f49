"""Measures the cost of delayed, noisy and wrong observations for each policy, and what makes a router robust to
them.
"""

from dataclasses import replace

from benchmarks.reproductions.runs import mean, percent, table
from benchmarks.reproductions.sections import IMAGES, Context, Section
from benchmarks.reproductions.staleness_figures import hits, in_time, lost, plot, points, seed_range, ttft
from benchmarks.reproductions.staleness_knobs import beliefs, bursts, noise, sources
from benchmarks.reproductions.staleness_runs import (
    CHOOSERS,
    DELAYS,
    INSTANCES,
    KV_ALONE,
    LATE,
    LATE_SERVED,
    LOADS,
    POLICIES,
    PRESET,
    QUEUED,
    REQUESTS,
    WARMUP,
    Runs,
    Trial,
    run_trials,
    trials,
)

PLOT = "staleness-delay.png"


def write(context: Context) -> str:
    """Run and describe."""
    saturation, runs = run_trials(context, trials())
    plot(runs).savefig(context.image(PLOT), dpi=110, metadata={"Software": None})
    return "\n\n".join(
        (
            setting(context, saturation),
            late_news(runs, saturation),
            turns(runs),
            sources(runs),
            noise(runs),
            bursts(runs),
            beliefs(runs),
            lessons(runs),
        )
    )


def setting(context: Context, saturation: float) -> str:
    """What is asked, and what was run."""
    trace = "conversation trace" if context.conversation else "generated conversations"
    return f"""A question of our own, not a paper's claim. A router knows at once what it sends, but hears from engines late, and is told prompt
lengths, cache sizes and KV use by others. How wrong may that be?

**What was run.** {trace[0].upper() + trace[1:]}, {REQUESTS:,} requests of which the first {WARMUP} are not measured, preset `{PRESET.name}`,
{INSTANCES} instances, no fetching, early rejection disabled, {context.seeds} seeds, at {LOADS[0]:g} and {LOADS[1]:g} times the estimated saturation
({saturation:.2f} requests per second). *Delay*: first tokens, completions and KV use reach the router so many seconds late. *Noise*: the prompt
lengths it is told are off by a log-normal factor of that sigma. Unless told otherwise, nothing waits in the router (`prefillsInFlight` 0), so that
only the choice of the instance can suffer. `round-robin` observes nothing and is the control. *In time* is a TTFT below {PRESET.slo_ttft_seconds:g}
s. Several routers, each blind to what the others send, are in the section on own history against events."""


def late_news(runs: Runs, saturation: float) -> str:
    """Delays, the choice alone."""
    parts = ["### Late news: the choice of the instance"]
    for load in LOADS:
        base = [Trial(policy=policy, load=load) for policy in POLICIES]
        rows = [
            (
                f"`{one.policy}`",
                *(percent(in_time(runs, replace(one, delay=delay))) for delay in DELAYS),
                *(f"{ttft(runs, replace(one, delay=delay)):.2f}" for delay in DELAYS),
                *(percent(hits(runs, replace(one, delay=delay))) for delay in (0.0, LATE)),
            )
            for one in base
        ]
        names = [
            *(f"in time, {delay:g} s" for delay in DELAYS),
            *(f"P90, {delay:g} s" for delay in DELAYS),
            "hits, 0 s",
            f"hits, {LATE:g} s",
        ]
        parts.append(table([f"{load:g}×", *names], rows))
    losses = {policy: lost(runs, Trial(policy=policy)) for policy in CHOOSERS}
    worst = max(losses, key=losses.__getitem__)
    ours = Trial(policy="fairlead")
    counters = [mean(runs[replace(ours, delay=delay)], lambda one: one.load_cv) for delay in (0.0, LATE)]
    wandering = max(seed_range(runs, Trial(policy=policy, load=LOADS[1])) for policy in CHOOSERS)
    moved = max(abs(hits(runs, Trial(policy=policy)) - hits(runs, Trial(policy=policy, delay=LATE))) for policy in CHOOSERS)
    parts.append(f"![In time lost by delay]({IMAGES}/{PLOT})")
    parts.append(f"""At {LOADS[0]:g}× a delay of {LATE:g} s costs `{worst}` {points(losses[worst])} and no other policy more than
{points(max(loss for policy, loss in losses.items() if policy != worst))}; the control {points(lost(runs, Trial(policy="round-robin")))}. What is late
is only that requests have *ended*. That one was sent, and how much work it is, the router counts at once, and that is what keeps a burst from
herding. Ended ones still counted are about {saturation * LOADS[0] * LATE / INSTANCES:.1f} an instance at {LATE:g} s, and nearly the same everywhere:
the counters grow, their order changes little (the coefficient of variation of `fairlead`'s falls from {counters[0]:.2f} to {counters[1]:.2f}). What
is lost is the distinction between idle and just finished; that hurts most where load is a plain count of requests, decodes among them, as in
`prefix-cache-load`: of the two policies that look at nothing else, `least-request` (requests) loses
{points(lost(runs, Trial(policy="least-request")))} and `least-loaded` (tokens to compute) {points(lost(runs, Trial(policy="least-loaded")))}. Hits
change by {points(moved)} at most. `mooncake` without fetching is `min-ttft` but for ties, which it gives to the first instance by id and `min-ttft`
to the one with the fewest decodes: {percent(in_time(runs, Trial(policy="mooncake")))} and {percent(in_time(runs, Trial(policy="min-ttft")))} without
delay, {percent(in_time(runs, Trial(policy="mooncake", delay=LATE)))} and {percent(in_time(runs, Trial(policy="min-ttft", delay=LATE)))} at {LATE:g}
s, where counters are seldom equal. At {LOADS[1]:g}× a pool without queues in the router is past its capacity under every policy; figures there are of
the backlog, and seeds differ by up to {points(wandering)}.""")
    return "\n\n".join(parts)


def turns(runs: Runs) -> str:
    """Delays, with queues in the router."""
    rows = [
        (
            f"`{one.policy}`{one.label.removeprefix(one.policy)}",
            str(one.in_flight) if one.in_flight else "all",
            *(percent(in_time(runs, replace(one, load=load, delay=delay))) for load in LOADS for delay in DELAYS),
        )
        for one in QUEUED
    ]
    names = [f"{load:g}×, {delay:g} s" for load in LOADS for delay in DELAYS]
    one, four = QUEUED[0], QUEUED[2]
    refused = mean(runs[replace(one, delay=LATE)], lambda figures: figures.rejected_share)
    half = DELAYS[2]
    least, control = (Trial(policy=policy, in_flight=1) for policy in ("min-ttft", "round-robin"))
    served = replace(four, weights=LATE_SERVED)
    return f"""### Late news: the turns

With queues in the router an instance gets its next prompt when a first token is *heard*. The table has the share in time by how many prefills may be
in flight.

{table(["", "in flight", *names], rows)}

Here lateness costs capacity. With one in flight, an instance waits for the news after every prefill: at {LOADS[0]:g}× and {half:g} s `fairlead` loses
{points(lost(runs, one, half))} and at {LATE:g} s {points(lost(runs, one))} ({percent(refused)} refused after their time in the queue), and so do the
others ({points(lost(runs, least, half))} and {points(lost(runs, least))} `min-ttft`, {points(lost(runs, control, half))} and
{points(lost(runs, control))} even the control). Four in flight keep the engine busy meanwhile: `min-ttft` loses
{points(lost(runs, replace(least, in_flight=4)))} at {LATE:g} s. What `fairlead` still loses then ({points(lost(runs, four))}) has another cause. Its
queue learns the pace of an instance from when first tokens are heard, takes late news for a slow engine, and holds back requests it believes late;
those count as lost, and that makes it hold back more. Sending them whenever nothing better waits (*late served*, `late_load` 100) leaves
{points(lost(runs, served))}, and costs {points(in_time(runs, replace(four, load=LOADS[1])) - in_time(runs, replace(served, load=LOADS[1])))} at
{LOADS[1]:g}× without delay. Four in flight instead of one cost
{points(in_time(runs, replace(one, load=LOADS[1])) - in_time(runs, replace(four, load=LOADS[1])))} there, where order matters. A delay of
{DELAYS[1]:g} s costs {points(lost(runs, one, DELAYS[1]))} with one in flight, as the engine has decodes to run meanwhile. A router hears first tokens
in the response itself, so its own delay is milliseconds; who puts a buffering proxy between should raise `prefillsInFlight`."""


def lessons(runs: Runs) -> str:
    """What decides robustness."""
    own = max(lost(runs, Trial(policy=policy)) for policy in CHOOSERS)
    return f"""### What decides robustness

- **Counting what one sends oneself.** Own counters are exact about what was sent and late only about what ended; choosing by them loses at most
  {points(own)} at {LATE:g} s. Choosing by the engines' last KV use loses {points(lost(runs, KV_ALONE))}, from a lower start. Differences between
  policies are small beside that.
- **Not waiting for news to give out work.** One prefill in flight turns {DELAYS[2]:g} s of delay into {points(lost(runs, QUEUED[0], DELAYS[2]))};
  four into {points(lost(runs, QUEUED[2], DELAYS[2]))}.
- **Not taking late news for slow engines.** `fairlead`'s queue holds back what it believes late, and with
  late news it believes that of requests that are not. This is open.
- **Placing one request at a time.** Bursts then see each other.
- Exact lengths and cache sizes matter least."""


SECTION = Section(name="staleness", title="What stale and wrong observations cost", write=write)
