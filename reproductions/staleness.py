"""Measures the cost of delayed, noisy and wrong observations for each policy, and what makes a router robust against
them.
"""

from dataclasses import replace

from reproductions.runs import GOODPUT_ATTAINMENT, mean, percent, table
from reproductions.sections import IMAGES, Context, Section
from reproductions.staleness_figures import hits, in_time, lost, plot, points, seed_range, ttft
from reproductions.staleness_knobs import beliefs, bursts, noise, sources
from reproductions.staleness_runs import (
    CHOOSERS,
    DELAYS,
    INSTANCES,
    KV_ALONE,
    LATE,
    LATE_SERVED,
    LOADS,
    NOISES,
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
NOTHING = 0.01
"""The loss of attainment (0-1) up to which it counts as no loss."""


def write(context: Context) -> str:
    """Run the trials and return the section's text."""
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
    """Return the text about the question and the setup."""
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
    """Return the text about delays when only the choice of the instance depends on observations."""
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
    requests, tokens = (lost(runs, Trial(policy=policy)) for policy in ("least-request", "least-loaded"))
    counting = (
        """What
is lost is the distinction between idle and just finished; that hurts most where load is a plain count of requests, decodes among them, as in
`prefix-cache-load`: of the two policies that look at nothing else,"""
        if worst == "prefix-cache-load" and requests > tokens
        else "Of the two policies that look at nothing but load,"
    )
    alike = sum(in_time(runs, Trial(policy=policy, load=LOADS[1])) >= GOODPUT_ATTAINMENT for policy in POLICIES)
    past = "under every policy" if not alike else f"under all but {alike} policies"
    parts.append(f"![In time lost by delay]({IMAGES}/{PLOT})")
    parts.append(f"""At {LOADS[0]:g}× a delay of {LATE:g} s costs `{worst}` {points(losses[worst])} and no other policy more than
{points(max(loss for policy, loss in losses.items() if policy != worst))}; the control {points(lost(runs, Trial(policy="round-robin")))}. What is late
is only that requests have *ended*. That one was sent, and how much work it is, the router counts at once, and that is what keeps a burst from
herding. Ended ones still counted are about {saturation * LOADS[0] * LATE / INSTANCES:.1f} an instance at {LATE:g} s, and nearly the same everywhere:
the counters grow, their order changes little (the coefficient of variation of `fairlead`'s goes from {counters[0]:.2f} to {counters[1]:.2f}).
{counting} `least-request` (requests) loses
{points(requests)} and `least-loaded` (tokens to compute) {points(tokens)}. Hits
change by {points(moved)} at most. `mooncake` without fetching is `min-ttft` but for ties, which it gives to the first instance by id and `min-ttft`
to the one with the fewest decodes: {percent(in_time(runs, Trial(policy="mooncake")))} and {percent(in_time(runs, Trial(policy="min-ttft")))} without
delay, {percent(in_time(runs, Trial(policy="mooncake", delay=LATE)))} and {percent(in_time(runs, Trial(policy="min-ttft", delay=LATE)))} at {LATE:g}
s, where counters are seldom equal. At {LOADS[1]:g}× a pool without queues in the router is past its capacity {past}; figures there are of
the backlog, and seeds differ by up to {points(wandering)}.""")
    return "\n\n".join(parts)


def turns(runs: Runs) -> str:
    """Return the text about delays when requests also wait in queues in the router."""
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
    also = "and so do the others" if min(lost(runs, least), lost(runs, control)) > NOTHING else "others"
    busy = (
        "Four in flight keep the engine busy meanwhile"
        if lost(runs, replace(least, in_flight=4)) < lost(runs, least) / 2
        else "With four in flight"
    )
    rest, kept = lost(runs, four), lost(runs, served)
    costs = "Here lateness costs capacity." if lost(runs, one, half) > NOTHING else "Here lateness costs little."
    cause = (
        f"""What `fairlead` still loses then ({points(rest)}) has another cause. Its
queue learns the pace of an instance from when first tokens are heard, takes late news for a slow engine, and holds back requests it believes late;
those count as lost, and that makes it hold back more."""
        if rest - kept > NOTHING
        else f"`fairlead` loses {points(rest)} then."
    )
    return f"""### Late news: the turns

With queues in the router an instance gets its next prompt when a first token is *heard*. The table has the share in time by how many prefills may be
in flight.

{table(["", "in flight", *names], rows)}

{costs} With one in flight, an instance waits for the news after every prefill: at {LOADS[0]:g}× and {half:g} s `fairlead` loses
{points(lost(runs, one, half))} and at {LATE:g} s {points(lost(runs, one))} ({percent(refused)} refused after their time in the queue),
{also} ({points(lost(runs, least, half))} and {points(lost(runs, least))} `min-ttft`, {points(lost(runs, control, half))} and
{points(lost(runs, control))} even the control). {busy}: `min-ttft` loses
{points(lost(runs, replace(least, in_flight=4)))} at {LATE:g} s. {cause} Sending them whenever nothing better waits (*late served*, `late_load` 100) leaves
{points(kept)}, and costs {points(in_time(runs, replace(four, load=LOADS[1])) - in_time(runs, replace(served, load=LOADS[1])))} at
{LOADS[1]:g}× without delay. Four in flight instead of one cost
{points(in_time(runs, replace(one, load=LOADS[1])) - in_time(runs, replace(four, load=LOADS[1])))} there, where order matters. A delay of
{DELAYS[1]:g} s costs {points(lost(runs, one, DELAYS[1]))} with one in flight, as the engine has decodes to run meanwhile. A router hears first tokens
in the response itself, so its own delay is milliseconds; who puts a buffering proxy between should raise `prefillsInFlight`."""


def lessons(runs: Runs) -> str:
    """Return the text about the causes of robustness."""
    own = max(lost(runs, Trial(policy=policy)) for policy in CHOOSERS)
    alone = lost(runs, KV_ALONE)
    small = " Differences between\n  policies are small beside that." if own < alone / 2 else ""
    lengths = max(in_time(runs, Trial(policy=policy)) - in_time(runs, Trial(policy=policy, noise=NOISES[-1])) for policy in CHOOSERS)
    least = f"\n- Exact lengths matter least: wrong ones cost the choice at most {points(lengths)}." if lengths < own else ""
    rest = lost(runs, QUEUED[2])
    slow = (
        """
- **Not taking late news for slow engines.** `fairlead`'s queue holds back what it believes late, and with
  late news it believes that of requests that are not. This is open."""
        if rest - lost(runs, replace(QUEUED[2], weights=LATE_SERVED)) > NOTHING
        else ""
    )
    return f"""### What decides robustness

- **Counting what one sends oneself.** Own counters are exact about what was sent and late only about what ended; choosing by them loses at most
  {points(own)} at {LATE:g} s. Choosing by the engines' last KV use loses {points(alone)}, from a lower start.{small}
- **Not waiting for news to give out work.** One prefill in flight turns {DELAYS[2]:g} s of delay into {points(lost(runs, QUEUED[0], DELAYS[2]))};
  four into {points(lost(runs, QUEUED[2], DELAYS[2]))}.{slow}
- **Placing one request at a time.** Bursts then see each other.{least}"""


SECTION = Section(name="staleness", title="What stale and wrong observations cost", write=write)
