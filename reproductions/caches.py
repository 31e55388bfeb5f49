"""Measures the benefit of engines' KV events over a router's own history: hits, attainment, and how well the blocks
that routers believe to be cached match those that engines hold.
"""

from fairlead_simulator.simulation.kv_events import KvEventQuality
from reproductions.caches_runs import (
    DELAYS,
    INSTANCES,
    LOAD,
    LOSSES,
    MAX_INPUT,
    POLICIES,
    PRESET,
    REQUESTS,
    ROOMY,
    ROUTER_RESTART,
    SETTINGS,
    SMALL,
    SMALL_CACHES,
    SOON,
    TWO,
    TWO_SMALL,
    WARMUP,
    Runs,
    Setting,
    Trial,
    run_trials,
    trials,
)
from reproductions.runs import percent, table
from reproductions.sections import Context, Section

CHANCE = 0.01
"""The difference of two hit rates (0-1) up to which it may be chance."""


def write(context: Context) -> str:
    """Run the trials and return the section's text."""
    saturation, runs = run_trials(context, trials())
    return "\n\n".join((setting_text(context, saturation), everywhere(runs), late_and_lost(runs)))


def setting_text(context: Context, saturation: float) -> str:
    """Return the text about the question and the setup."""
    trace = "Mooncake's conversation trace" if context.conversation else "Generated conversations"
    return f"""A question of our own. A router knows what it sent itself, and guesses from that what engines' caches hold (*own history*). Engines that
publish KV events say what they hold (*events*, [kv-events.md](kv-events.md)). What is the difference worth, and when do late or lost events spoil it?

**What was run.** {trace}, {REQUESTS:,} requests below {MAX_INPUT:,} tokens of which the first {WARMUP} are not measured, preset `{PRESET.name}` with the
prefix cache in GPU memory, {INSTANCES} instances, no fetching, {LOAD:g} times the estimated saturation ({saturation:.2f} requests
per second). The simulated engines publish what their caches do; a router follows it with its own code (index, numbers, replays), {SOON.delay_seconds:g} s
late unless told otherwise. *Small caches* are {SMALL:g} of the preset's KV memory, so that they evict. Two routers get requests in turn, and share no
bindings here. Halfway through what is measured, *restarted* routers know nothing, and restarted engines (two, one after the other) hold nothing for 10 s
and begin empty. *Exact* is the share of requests of which the router knew the cached tokens to the token when it sent them, *off by* what it was wrong by,
as a share of all cached tokens. Each trial was run once, with seed 0; differences of a point may be chance.
*In time* is a TTFT below {PRESET.slo_ttft_seconds:g} s. No policy was changed for events."""


def everywhere(runs: Runs) -> str:
    """Return the table of all policies in all settings, with events and with own history."""
    parts = ["### Own history against events"]
    for setting in SETTINGS:
        rows = []
        for policy in POLICIES:
            ways = [Trial(policy=policy, setting=setting, heard=heard) for heard in (None, SOON)]
            cells = [[percent(hits(runs, one)) for one in ways], [percent(in_time(runs, one)) for one in ways]]
            cells += [[percent(exact(runs, one)) for one in ways], [percent(off(runs, one)) for one in ways]]
            rows.append((f"`{policy}`", *(cell for pair in cells for cell in pair)))
        names = [f"{name}, {how}" for name in ("hits", "in time", "exact", "off by") for how in ("own", "events")]
        parts.append(table([setting.name, *names], rows))
    alone, shared = (_gains(runs, setting) for setting in (ROOMY, TWO))
    evicting, both = (_gains(runs, setting) for setting in (SMALL_CACHES, TWO_SMALL))
    began = _gains(runs, ROUTER_RESTART)
    least = min(in_time(runs, Trial(policy=policy, setting=one, heard=SOON)) for one in SETTINGS for policy in POLICIES)
    least = min(least, *(in_time(runs, Trial(policy=policy, setting=one)) for one in SETTINGS for policy in POLICIES))
    wrong = [off(runs, Trial(policy=policy, setting=TWO_SMALL)) for policy in POLICIES]
    known = [off(runs, Trial(policy=policy, setting=TWO_SMALL, heard=SOON)) for policy in POLICIES]
    most = max(map(abs, alone))
    knows = "nearly everything" if most <= CHANCE else "much"
    more = f"events give {_span(shared)} more hits" if min(shared) > CHANCE else f"events change hits by {_span(shared)}"
    parts.append(f"""One router that has sent everything itself knows {knows}: events change its hits by {_span(alone)}. What it does not know are
evictions it cannot foresee, as running requests take the memory; with small caches events change hits by {_span(evicting)}. Of what goes through a
second router each of two knows nothing: with two, {more}, and {_span(both)} with small caches, where own history is off by
{percent(min(wrong))} to {percent(max(wrong))} of all cached tokens and events by {percent(min(known))} to {percent(max(known))}. A restarted router is told
by replays what engines hold ({_span(began)} of hits over the whole run, half of which came before the restart). At this load {percent(least)} or
more are in time either way: what events save here is prefill work.""")
    return "\n\n".join(parts)


def late_and_lost(runs: Runs) -> str:
    """Return the text about delayed and lost events."""
    rows = []
    for policy in ("fairlead", "heimdall"):
        own = Trial(policy=policy, setting=TWO_SMALL)
        rows.append(_row(runs, f"`{policy}`, own history", own))
        rows += [_row(runs, f"`{policy}`, {delay:g} s late", _with(own, KvEventQuality(delay_seconds=delay))) for delay in DELAYS]
        rows += [_row(runs, f"`{policy}`, {name}", _with(own, heard)) for name, heard in LOSSES.items()]
    ours = Trial(policy="fairlead", setting=TWO_SMALL)
    at_once, latest = (_with(ours, KvEventQuality(delay_seconds=delay)) for delay in (DELAYS[0], DELAYS[-1]))
    replayed, for_good = (_with(ours, LOSSES[name]) for name in ("10 % lost, replayed", "1 % lost for good"))
    return f"""### Late and lost events

Two routers, small caches.

{table(["", "hits", "in time", "P90, s", "exact", "off by"], rows)}

Events that are {DELAYS[-1]:g} s late leave `fairlead` {percent(hits(runs, latest))} of hits, against {percent(hits(runs, at_once))} at once and
{percent(hits(runs, ours))} by own history. With a tenth of the batches lost and replayed it has {percent(hits(runs, replayed))}: a gap costs one question and
its answer. Where nothing can be replayed, one batch in a hundred lost means that the index of an engine begins anew again and again, with own history
beside it until an engine says that it holds nothing: {percent(hits(runs, for_good))}. Set `replay_endpoint`."""


def hits(runs: Runs, trial: Trial) -> float:
    """Return the hit rate of a trial (0-1)."""
    return runs[trial].figures.hit_rate


def in_time(runs: Runs, trial: Trial) -> float:
    """Return the attainment of a trial (0-1)."""
    return runs[trial].figures.attainment


def exact(runs: Runs, trial: Trial) -> float:
    """Return the share of requests whose cached tokens the router knew exactly."""
    return runs[trial].figures.belief_exact or 0.0


def off(runs: Runs, trial: Trial) -> float:
    """Return the error of the router's beliefs about caches, as a share of all cached tokens."""
    return runs[trial].figures.belief_error or 0.0


def _with(trial: Trial, heard: KvEventQuality) -> Trial:
    return Trial(policy=trial.policy, setting=trial.setting, heard=heard)


def _row(runs: Runs, name: str, trial: Trial) -> tuple[str, ...]:
    p90 = runs[trial].figures.ttft_p90 or 0.0
    return (
        name,
        percent(hits(runs, trial)),
        percent(in_time(runs, trial)),
        f"{p90:.2f}",
        percent(exact(runs, trial)),
        percent(off(runs, trial)),
    )


def _gains(runs: Runs, setting: Setting) -> list[float]:
    """Return, for every policy, its hit rate with events minus its hit rate with own history."""
    both = [[Trial(policy=policy, setting=setting, heard=heard) for heard in (None, SOON)] for policy in POLICIES]
    return [hits(runs, events) - hits(runs, own) for own, events in both]


def _span(shares: list[float]) -> str:
    least, most = (round(100 * share, 1) + 0.0 for share in (min(shares), max(shares)))
    return f"{least:+.1f} to {most:+.1f} points"


SECTION = Section(name="caches", title="Approximate against precise: own history against KV events", write=write)
