"""The text of the DualMap section.

All figures, and all words that state results, are computed. The words that give reasons are fixed.
"""

from collections.abc import Mapping, Sequence

from reproductions import dualmap_candidates, dualmap_variants
from reproductions.dualmap_claims import GOODPUT, Measured, signed
from reproductions.dualmap_elasticity import FEW, LOAD, MANY, Elasticity
from reproductions.dualmap_held_up import EDGE, HeldUp
from reproductions.dualmap_homes import KeyMoves
from reproductions.dualmap_rates import NAMES, gain
from reproductions.dualmap_setup import Results, Study
from reproductions.runs import percent


def introduction(both: Sequence[Measured]) -> str:
    """Return the idea, the claims in brief, and the setup."""
    rates = " and ".join(f"{one.study.saturation:.2f} requests/s ({one.study.title})" for one in both)
    source = "the recorded conversation trace" if both[0].study.context.conversation is not None else "generated conversations"
    seeds = both[0].study.context.seeds
    few = {1: "one", 2: "two"}[dualmap_variants.few(both[0].study)]
    return f"""DualMap gives each prefix two instances by two hash rings: the one that holds more of it takes the request unless its queue endangers the
TTFT target, and queued requests move within their pair when both are overloaded. The paper claims that this serves far more requests in time than
hashing to one instance, balancing, minimising the TTFT or Preble do, at nearly the hits of pure affinity.

Settings of the paper's first testbed: preset `dualmap-910b4-qwen7b`, {MANY} instances, TTFT target 5 s, no fetching between engines, no early rejection,
prompts of 20,480 tokens and more dropped, the first {len(both[0].study.loaded.rows):,} of the rest. The first {both[0].study.warmup} of these warm the
caches, at 0.3 and 0.5 requests/s, and are not measured. Workloads: {source}, and a generated trace with the shape of Tool&Agent.
Requests of one stamp are spread evenly, as the paper's client does.

*Effective capacity* is the share of all measured requests with a first token within 5 s; *goodput* the rate at which it falls below 90 %,
interpolated between neighbouring rates. Rates are multiples of the estimated saturation, an upper bound on what can
be served whole (who refuses or delays long prompts may have 90 % in time beyond it): {rates}.
Figures are means over {seeds} seeds, which change every hash (over {few} where queue orders are compared); policies that hash nothing do the same with
every seed and run once."""


def same_queue(both: Sequence[Measured]) -> str:
    """Return the text about placement alone, with the same queue for all policies."""
    lines: list[str] = []
    for one in both:
        found = gain(one.same)
        hit, affinity = (one.same.mean(name, 0.9, "hit_rate") / one.study.ideal_hit_rate for name in ("dualmap", "cache-affinity"))
        spread, hot = (one.same.mean(name, 0.9, "load_cv") for name in ("dualmap", "cache-affinity"))
        lines.append(
            f"- {one.study.title}: at 0.9× `dualmap` has {percent(hit)} of the ideal hits (`cache-affinity` {percent(affinity)}) with a coefficient of "
            f"variation of {spread:.2f} instead of {hot:.2f}. Goodput: {signed(found.goodput)} against the best baseline (`{found.best_goodput}`), "
            f"{_goodputs(one, found.best_goodput)} against the others. Effective capacity: at most {signed(found.capacity)} against the best baseline, "
            f"at {found.capacity_at:g}×. {_room(one, found.best_goodput)}"
            f"At {one.same.multiples('dualmap')[-1]:g}× {percent(_crowded(one))} of the ideal hits are left."
        )
    return (
        "Requests wait in the router, in order of arrival, one prefill per instance in flight, so only the placement differs; `fairlead`, the default "
        "policy, is beside them with its own queue order.\n\n" + "\n".join(lines) + f"\n\n{_overloaded(both)}"
    )


def as_published(both: Sequence[Measured]) -> str:
    """Return the text about the published code's setting, and its differences from the paper."""
    preble = ", ".join(
        f"{one.study.title} {percent(one.same.mean('preble', 0.95, 'attainment'))} → {percent(one.published.mean('preble', 0.95, 'attainment'))}"
        for one in both
    )
    lines = []
    for one in both:
        found = gain(one.published)
        without = [name for name in NAMES if name != "preble"]
        rest = max(one.published.goodput(name) for name in without)
        lines.append(
            f"- {one.study.title}: up to {signed(found.capacity)} at {found.capacity_at:g}×, goodput {signed(found.goodput)} against "
            f"`{found.best_goodput}` ({signed(one.published.goodput('dualmap') / rest - 1) if rest else 'not comparable'} against the best "
            "without `preble`)."
        )
    return (
        "As read, the published code gives DualMap something the paper does not describe: a queue per instance in the router, most cached tokens first "
        "without any bound on waiting, one prefill in flight, half the SLO as threshold and hotness constants of its own (`dualmap-code`). Its "
        "baselines have no such queue; their requests go to an engine on arrival and wait there in order. Nothing is refused for waiting.\n\n"
        + "\n".join(lines)
        + f"\n\n`preble` has {preble} in time at 0.95×, one queue → at once. The code's copy of Preble picks a position in the list of holders instead of "
        "the holder itself, which loses what it looked for; Fairlead's does not."
        + (
            " That may be why it is so strong a baseline here and not in the paper: a guess, not tested."
            if all(gain(one.published).best_goodput == "preble" for one in both)
            else ""
        )
    )


def queues(both: Sequence[tuple[Study, Results]]) -> str:
    """Return the text about which difference of the published code matters."""
    fifo, ordered, young, alone = (dualmap_variants.QUEUES[place].label for place in (1, 3, 4, 5))
    lines = []
    gains: dict[str, list[float]] = {label: [] for label in (ordered, young, alone)}
    for study, results in both:
        last = results.multiples(fifo)[-1]
        shares = [percent(results.mean(label, last, "attainment")) for label in (fifo, ordered, alone)]
        for label, found in gains.items():
            found.append(results.mean(label, last, "attainment") - results.mean(fifo, last, "attainment"))
        lines.append(
            f"{study.title} at {last:g}×: {shares[0]} with arrival order, {shares[1]} with longest hit first, {shares[2]} with `min-ttft` under it"
        )
    decides = min(gains[ordered]) > 0
    bounded = decides and all(some < gained / 4 for some, gained in zip(gains[young], gains[ordered], strict=True))
    too = decides and all(some > gained / 2 for some, gained in zip(gains[alone], gains[ordered], strict=True))
    inference = (
        " The gains of this size that the paper reports beyond saturation are therefore most likely its queue's (an inference: the paper's own runs "
        f"were not available); `min-ttft` has {'most' if too else 'less than half'} of them too with `queue_discipline: longest_hit` and a large "
        "`queue_age_bound_seconds`."
        if decides
        else ""
    )
    return (
        (
            "Beyond saturation the order of the queue decides, not the pair: "
            if decides
            else "Beyond saturation the order of the queue alone does not decide: "
        )
        + "; ".join(lines)
        + ". Longest hit first serves short remainders and lets the rest wait without end; "
        + f"an age bound of 2 s {'takes the effect away' if bounded else 'leaves some of it'}."
        + inference
    )


def timeout(shift: float) -> str:
    """Return the text about the effect of Fairlead's limit on waiting."""
    return (
        f"Fairlead refuses what waited 60 s; the paper's code never does. The timeout changes the attainment of the policies by at most "
        f"{100 * shift:.1f} points beyond saturation: who waited a minute is late in either case, and few others gain from the place. It does cap "
        "the TTFT percentiles of the overloaded cells, which count served requests only, so they are not comparable with the paper's."
    )


def ablation(both: Sequence[tuple[Study, Results]], held: Sequence[HeldUp]) -> str:
    """Return the text about the gain of DualMap's parts, and why rebalancing does not gain more."""
    none, once, corrected, paper = (
        one.label
        for one in (dualmap_variants.NO_REBALANCING, dualmap_variants.AT_ARRIVAL, dualmap_variants.CORRECTED, dualmap_variants.PAPER)
    )
    lines = []
    lifted, looked, asked = [], [], []
    for study, results in both:
        last = results.multiples(none)[-1]
        shares = {label: results.mean(label, last, "attainment") for label in (none, once, corrected, paper, "dualmap")}
        moves = {label: results.mean(label, last, "moves") for label in (corrected, "dualmap")}
        points = {label: f"{100 * (share - shares[none]):+.1f}" for label, share in shares.items()}
        lifted.append(shares[none] - max(results.mean(name, last, "attainment") for name in ("cache-affinity", "least-loaded")))
        looked.append(shares["dualmap"] - shares[corrected])
        asked.append(shares[once] - shares[paper])
        lines.append(
            f"- {study.title}, {last:g}×: against no rebalancing {points[once]} points where only a request that finds both overloaded starts it, "
            f"{points['dualmap']} with a look at all queues four times a second; with the decode correction {points[corrected]}, with "
            f"{moves[corrected]:.0f} moves instead of {moves['dualmap']:.0f}; as the paper has it {points[paper]}."
        )
    return (
        f"Choosing by hit under the SLO rule {'is what lifts' if min(lifted) > 0 else 'alone does not lift'} the pair above each of its halves. What "
        f"rebalancing adds depends on who starts it and on the decode correction. {_correction(looked, asked)}`dualmap` looks at all queues and does not "
        "correct:\n\n"
        + "\n".join(lines)
        + "\n\nThe decode correction takes an instance with a queue and no first token for 3 s as held up and moves its queue. In a run of each with it at "
        f"{EDGE:g}× that was so in "
        + " and ".join(f"{percent(one.share)} ({study.title})" for (study, _), one in zip(both, held, strict=True))
        + " of the instants at which an instance had a queue, with "
        + " and ".join(percent(one.memory) for one in held)
        + " of its KV memory in use in the mean. Such an instance works again as soon as a decode ends, while what was moved has less of its prefix "
        "where it went. Moves count sessions that change their recorded home as well as requests."
    )


def elastic_load() -> str:
    """Return the text about the elasticity run."""
    return (
        f"The conversation workload again, at {LOAD:g}× of what {FEW} instances can take, then of {MANY}, then of {FEW}; the pool follows at the same "
        f"moment. New instances begin with empty caches, and the {MANY - FEW} that came are those that go."
    )


def elasticity(found: Elasticity, moves: Mapping[str, KeyMoves]) -> str:
    """Return the text about moved sessions and keys, compared with the smallest possible number."""
    ours, papers = moves["distinct"], moves["paper"]
    always = "always" if ours.needless == 0 else f"but for {percent(ours.needless)} of all places"
    dualmap = next(one for one in found.runs if one.label == "dualmap")
    affinity = next(one for one in found.runs if one.label == "cache-affinity")
    strayed = [one.down.strayed / one.down.staying if one.down.staying else 0.0 for one in (dualmap, affinity)]
    return (
        f"On the rings, going from {FEW} to {MANY} instances gives {percent(ours.owners)} of the keys of one ring another owner and {percent(ours.places)} "
        f"of the places in pairs another instance, {always} a new one: a half is the least that evens out the load. {percent(ours.kept)} of the keys keep "
        f"one of their two candidates, and with it their cache. With the paper's rule for equal candidates (next by index) {percent(papers.places)} of the "
        f"places change, {percent(papers.needless)} from one old instance to another for nothing. Going back restores every pair. In the run, sessions "
        "also move for load. Of those whose instance stayed when the pool shrank, "
        f"{percent(strayed[0])} left it all the same under `dualmap` and {percent(strayed[1])} under `cache-affinity`."
    )


def candidates(both: Sequence[tuple[Study, Results]], knees: Mapping[str, bool]) -> str:
    """Return the text about the number of candidates beyond which more candidates gain little."""
    lines = []
    for study, results in both:
        full, still = (dualmap_candidates.steps(results, group) for group in (dualmap_candidates.FULL, dualmap_candidates.STILL))
        word = "two is the knee" if knees[study.title] else "two is not the knee"
        lines.append(f"- {study.title}: {_steps(full)} with rebalancing, {_steps(still)} without: {word}.")
    return (
        "In brackets without rebalancing. Mean gain in attainment over these rates for the second, third and fourth candidate:\n\n"
        + "\n".join(lines)
        + "\n\nA knee means here that the second candidate gains at least twice what the third and fourth gain together. "
        f"At {dualmap_candidates.EDGE:g}×, just where the pool fills up, four candidates without rebalancing still change attainment against two by "
        + " and ".join(f"{_edge(results):+.1f} points ({study.title})" for study, results in both)
        + "."
    )


def anchors(shares: Mapping[int, float]) -> str:
    """Return the text about the effect of a single anchor."""
    return (
        f"One anchor per instance, as the paper has it, gives the largest owner up to {shares[1]:.1f} times an even share of a ring; 160, the default and "
        f"what the published code uses, {shares[160]:.2f} times."
    )


def _goodputs(one: Measured, winner: str) -> str:
    mine = one.same.goodput("dualmap")
    gains = []
    for name in NAMES:
        theirs = one.same.goodput(name)
        if name != winner:
            gains.append(
                f"{signed(mine / theirs - 1)} (`{name}`)"
                if theirs
                else f"at least {signed(mine / one.same.multiples(name)[0] - 1)} (`{name}`)"
            )
    return ", ".join(gains)


def _room(one: Measured, baseline: str) -> str:
    """Return a sentence about how far the saturation is above the baseline's goodput; empty if the baseline has
    none.
    """
    reached = one.same.goodput(baseline)
    if not reached:
        return ""
    room = 1 / reached - 1
    small = ", which leaves hardly any room for the paper's gain while everybody is served in order of arrival" if room < GOODPUT[1] else ""
    return f"The saturation is {'only ' if small else ''}{signed(room)} from the best baseline's goodput{small}. "


def _overloaded(both: Sequence[Measured]) -> str:
    """Return the text about the first rate past saturation, as far as the results of both workloads agree."""

    def share(one: Measured, name: str, figure: str = "attainment") -> float:
        rates = one.same.multiples("dualmap")
        return one.same.mean(name, next((rate for rate in rates if rate > 1), rates[-1]), figure)

    others = [name for name in ("cache-affinity", "preble") if all(share(one, name) > share(one, "dualmap") for one in both)]
    said: list[str] = []
    if others:
        named = ", ".join(f"`{name}`" for name in others)
        said.append(
            "With one order of arrival, a backlog of more than five seconds makes everybody late, and a policy that balances well reaches it on all "
            f"instances at the same moment; policies that balance badly ({named}) still have instances with short queues where the pool as a whole is "
            "overloaded, and more requests in time."
        )
    if all(share(one, "fairlead") > max(share(one, name) for name in ("dualmap", *NAMES)) for one in both):
        said.append("What to do past that point is a question of the queue's order, not of placement, as `fairlead` shows.")
    if all(share(one, "dualmap", "hit_rate") < one.same.mean("dualmap", 0.9, "hit_rate") for one in both):
        said.append("Hits fall there because overloaded pairs send requests to whichever member is less loaded.")
    return " ".join(said) or "Past saturation the policies come out otherwise from one workload to the other."


def _correction(looked: Sequence[float], asked: Sequence[float]) -> str:
    """Return the text about the cost of the decode correction (0-1 of attainment, by workload).

    It compares checking all queues with checking only the arriving request's queue. It is empty if the costs do not
    clearly differ.
    """
    if min(looked) > 0 and all(some < most / 2 for some, most in zip(asked, looked, strict=True)):
        return "Where all queues are looked at the correction costs most; where only an arriving request looks, as in the paper, it costs little. So "
    return ""


def _crowded(one: Measured) -> float:
    """Return the share of the ideal hits that `dualmap` has at the highest rate."""
    return one.same.mean("dualmap", one.same.multiples("dualmap")[-1], "hit_rate") / one.study.ideal_hit_rate


def _edge(results: Results) -> float:
    """Return the points of attainment by which four candidates exceed two at the rate `EDGE`, without rebalancing."""
    two, four = (results.mean(dualmap_candidates.STILL[index].label, dualmap_candidates.EDGE, "attainment") for index in (1, 3))
    return 100 * (four - two)


def _steps(changes: Sequence[float]) -> str:
    return ", ".join(f"{100 * change:+.1f}" for change in changes) + " points"
