"""Elasticity: the load doubles and halves again, and the pool grows from four instances to eight and back at the same
moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from fairlead.tables import InstanceEntry
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, plan_jobs
from fairlead_simulator.experiments.cells import simulate_cell
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.timeline import ScaleTo
from fairlead_simulator.traces.descriptions import percentile
from reproductions.dualmap_homes import Step, session_moves, total
from reproductions.dualmap_setup import BASELINES, COLOURS, DUALMAP, MARKERS, TTFT_SLO_SECONDS, Study, Variant
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context

FEW, MANY = 4, 8
LOAD = 0.8
"""The rate of every phase, as a share of that phase's saturation."""
BIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All seeds of a policy, and the moves of sessions at the two steps.

    Measured requests are (seconds since the first one, TTFT or None if it was refused).
    """

    label: str
    requests: tuple[tuple[float, float | None], ...]
    up: Step
    down: Step

    def attainment(self, begin: float, end: float) -> float | None:
        """Return the attainment of the requests that arrived in [begin, end); None if there were none."""
        found = [ttft for at, ttft in self.requests if begin <= at < end]
        return sum(ttft is not None and ttft < TTFT_SLO_SECONDS for ttft in found) / len(found) if found else None

    def ttft_p90(self, begin: float, end: float) -> float | None:
        """Return P90 TTFT in seconds of the served requests that arrived in [begin, end); None if there were none."""
        found = sorted(ttft for at, ttft in self.requests if begin <= at < end and ttft is not None)
        return percentile(found, 90) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """The runs of all policies.

    `steps` are the times of the two changes and `end` is the time of the last arrival, in seconds since the first
    measured request.
    """

    runs: tuple[Run, ...]
    steps: tuple[float, float]
    end: float


def run(study: Study) -> Elasticity:
    """Run every policy over all seeds and return the runs."""
    few_rate = LOAD * study.saturation * FEW / MANY
    count = len(study.loaded.rows) - study.warmup
    first, second = study.warmup + count // 4, study.warmup + 3 * count // 4
    loaded = with_rates(
        study.loaded, [(study.warmup, first, few_rate), (first, second, 2 * few_rate), (second, len(study.loaded.rows), few_rate)]
    )
    ideal, _ = ideal_hits(loaded)
    rate = measured_rate(loaded, study.warmup)
    begin, steps, end = _landmarks(loaded, replace(study.cell(DUALMAP, LOAD, 0).plan, rate=rate), first, second)
    timeline = (ScaleTo(at=begin + steps[0], instances=MANY), ScaleTo(at=begin + steps[1], instances=FEW))
    runs: list[Run] = []
    for variant in (DUALMAP, *BASELINES):
        requests: list[tuple[float, float | None]] = []
        ups: list[Step] = []
        downs: list[Step] = []
        for seed in range(study.context.seeds if variant.hashes else 1):
            cell = study.cell(variant, LOAD, seed)
            cell = replace(cell, spec=replace(cell.spec, instances=FEW), plan=replace(cell.plan, rate=rate), timeline=timeline)
            result, finished = simulate_cell(loaded, ideal, cell)
            study.context.say(f"dualmap, elasticity: {variant.label}, seed {seed}: {result.figures.attainment:.1%} in time")
            measured = [job for job in finished.jobs if job.index >= study.warmup]
            requests += [(job.arrives_at - begin, ttft(job)) for job in measured]
            staying = {entry.id for entry in cell.spec.first_table().instances}
            ups.append(session_moves(measured, begin + steps[0], (begin, begin + steps[1]), None))
            downs.append(session_moves(measured, begin + steps[1], (begin + steps[0], begin + end + 1), staying))
        runs.append(Run(label=variant.label, requests=tuple(requests), up=total(ups), down=total(downs)))
    return Elasticity(runs=tuple(runs), steps=steps, end=end)


def with_rates(loaded: Workload, parts: Sequence[tuple[int, int, float]]) -> Workload:
    """Return the workload with the rows of each part (from, to, requests per second) stretched to that rate.

    Parts follow each other; rows before the first part stay.
    """
    seconds = list(loaded.seconds)
    at = seconds[parts[0][0]]
    for begin, end, rate in parts:
        span = loaded.seconds[end - 1] - loaded.seconds[begin]
        factor = (end - begin - 1) / rate / span if span > 0 else 0.0
        for index in range(begin, end):
            seconds[index] = at + (loaded.seconds[index] - loaded.seconds[begin]) * factor
        at = seconds[end - 1] + 1 / rate
    return replace(loaded, seconds=tuple(seconds), gaps=tuple((second, 0.0) for second in seconds))


def measured_rate(loaded: Workload, warmup: int) -> float:
    """Return the requests per second of the rows after the warm-up. A plan with this rate leaves their times
    unchanged.
    """
    return (len(loaded.seconds) - warmup - 1) / (loaded.seconds[-1] - loaded.seconds[warmup])


def ttft(job: Job) -> float | None:
    """Return the seconds to the first token; None for a refused or lost request."""
    return job.first_token_at - job.arrives_at if job.phase is Phase.FINISHED else None


def phase_table(study: Study, found: Elasticity) -> str:
    """Return a table of attainment and P90 TTFT in each phase, and in the first minute after each step."""
    up, down = found.steps
    spans = [(0.0, up), (up, up + 60), (up, down), (down, down + 60), (down, found.end + 1)]
    rows = [
        [f"`{one.label}`", *(f"{_percent(one.attainment(*span))} / {_seconds(one.ttft_p90(*span))}" for span in spans)]
        for one in found.runs
    ]
    names = [f"{FEW}", f"{MANY}, first minute", f"{MANY}", f"{FEW} again, first minute", f"{FEW} again"]
    return table([f"{study.title}: in time / P90 TTFT, s", *names], rows)


def step_table(found: Elasticity) -> str:
    """Return the table with the share of sessions that went to another instance at each step."""
    rows = [
        [
            f"`{one.label}`",
            _share(one.up.moved, one.up.sessions),
            _share(one.down.moved, one.down.sessions),
            _share(one.down.sessions - one.down.staying, one.down.sessions),
            _share(one.down.strayed, one.down.staying),
        ]
        for one in found.runs
    ]
    names = [f"moved at {FEW} → {MANY}", f"moved at {MANY} → {FEW}", "of these had to", "left an instance that stayed"]
    return table(["sessions", *names], rows)


def plot(context: Context, name: str, found: Elasticity) -> str:
    """Plot attainment and P90 TTFT over time, and return the Markdown of the picture."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    begins = [number * BIN_SECONDS for number in range(max(1, int(found.end // BIN_SECONDS)))]
    for number, one in enumerate(found.runs):
        style = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4, "linewidth": 2 if one.label == "dualmap" else 1.1}
        shares = [one.attainment(begin, begin + BIN_SECONDS) for begin in begins]
        top.plot([begin + BIN_SECONDS / 2 for begin in begins], [_plotted(share, 100) for share in shares], label=one.label, **style)
        slow = [one.ttft_p90(begin, begin + BIN_SECONDS) for begin in begins]
        bottom.plot([begin + BIN_SECONDS / 2 for begin in begins], [_plotted(value, 1) for value in slow], **style)
    for axes in (top, bottom):
        for step in found.steps:
            axes.axvline(step, color="grey", linewidth=0.8, linestyle="--")
    bottom.axhline(TTFT_SLO_SECONDS, color="grey", linewidth=0.7, linestyle=":")
    top.set(ylabel="in time, %", ylim=(-2, 102))
    bottom.set(ylabel="P90 TTFT, s", xlabel="seconds", yscale="log")
    bottom.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    bottom.minorticks_off()
    figure.legend(*top.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
    figure.suptitle(f"{FEW} → {MANY} → {FEW} instances as the load doubles and halves (all seeds, {BIN_SECONDS:g} s each)")
    figure.savefig(context.image(name), dpi=110, metadata={"Software": None})
    return f"![attainment and P90 TTFT over time while the pool is scaled]({IMAGES}/{name})"


def pools(study: Study) -> tuple[Sequence[InstanceEntry], Sequence[InstanceEntry]]:
    """Return the instances of the small and of the large pool of seed 0."""
    spec = study.cell(Variant(label="", policy="dualmap"), LOAD, 0).spec
    entries = replace(spec, instances=MANY).first_table().instances
    return entries[:FEW], entries


def _landmarks(loaded: Workload, plan: ArrivalPlan, first: int, second: int) -> tuple[float, tuple[float, float], float]:
    jobs = plan_jobs(loaded, plan)
    begin = jobs[plan.warmup].arrives_at
    return begin, (jobs[first].arrives_at - begin, jobs[second].arrives_at - begin), jobs[-1].arrives_at - begin


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "–"


def _percent(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _plotted(value: float | None, factor: float) -> float:
    return float("nan") if value is None else factor * value
