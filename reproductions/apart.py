"""The cost when the routers of a pool cannot ask each other, by both targets and by first tokens, over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import fsum, sqrt

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Figures, Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import run, table, workload
from reproductions.sections import Context, Section

PRESET = preset("dualmap-910b4-qwen7b")
INSTANCES = 8
REQUESTS, WARMUP = 2000, 200
LOADS = (0.75, 1.0)
ROUTERS = 4
ASKING_SECONDS = 0.0005
TOLD_SECONDS = 2.0
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""The factor of the 95 % interval of a mean (Student's t), by the number of seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way in which the routers of a pool work together or separately."""

    name: str
    routers: int = ROUTERS
    asking_seconds: float | None = None
    told_seconds: float | None = None


ARMS = (
    Arm(name="one router", routers=1),
    Arm(name="four, one decides", asking_seconds=ASKING_SECONDS),
    Arm(name=f"four, each for itself, told after {TOLD_SECONDS:g} s", told_seconds=TOLD_SECONDS),
    Arm(name="four, each for itself, told nothing"),
)


def write(context: Context) -> str:
    """Run the cells and return the section's text."""
    results = _results(context)
    rows = [_row(f"{load:g}×, {arm.name}", results[load, arm]) for load in LOADS for arm in ARMS]
    heading = ("", "both targets met, %", "first tokens in time, %", "refused, %", "tokens from caches, %")
    return f"""{_setting(context)}

{table(heading, rows)}"""


def _setting(context: Context) -> str:
    trace = "The trace given by `--conversation`" if context.conversation else "Generated conversations"
    return f"""A question of our own. One router decides for all where they can ask each other; where they cannot (another release, a network between them,
`AfterPrefill`), each decides for itself. Once a second it tells the others its work and where its prompts went, and is told the same
{TOLD_SECONDS:g} s later; or it is told nothing, as while the control API is away.

**What was run.** {trace}, {REQUESTS:,} requests of which the first {WARMUP} are not measured, preset `{PRESET.name}`, {INSTANCES} instances without
fetching, policy `fairlead`, requests to routers in turn, early rejection disabled, {context.seeds} seeds; as in a real pool, routers find out how long
decode steps take. Shares are of all requests, as mean and 95 % interval over the seeds (Student's t); the targets are a TTFT of
{PRESET.slo_ttft_seconds:g} s and a TPOT of {1000 * PRESET.slo_tpot_seconds:g} ms."""


def _results(context: Context) -> dict[tuple[float, Arm], list[CellResult]]:
    requests = 80 if context.quick else REQUESTS
    loaded = workload("conversation", requests=requests, max_input=PRESET.max_input_tokens, recorded=context.conversation)
    keys = [(load, arm, seed) for seed in range(context.seeds) for load in LOADS for arm in ARMS]
    cells = [cell_of(context, loaded, *key) for key in keys]
    found: dict[tuple[float, Arm], list[CellResult]] = {}
    for (load, arm, _), result in zip(keys, run(context, "apart", loaded, cells), strict=True):
        found.setdefault((load, arm), []).append(result)
    return found


def cell_of(context: Context, loaded: Workload, load: float, arm: Arm, seed: int) -> Cell:
    """Return the run of one arm at a multiple of the estimated saturation."""
    ideal, _ = ideal_hits(loaded)
    spec = SimulatedPool(
        preset=PRESET,
        instances=INSTANCES,
        policy="fairlead",
        slo_ttft_seconds=PRESET.slo_ttft_seconds,
        slo_tpot_seconds=PRESET.slo_tpot_seconds,
        prefill_tokens_per_second=believed_speed(loaded, ideal, PRESET),
        fetching=False,
        seed=seed,
    )
    spec = replace(spec, routers=arm.routers, asking_seconds=arm.asking_seconds, told_seconds=arm.told_seconds)
    rate = load * estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    return Cell(
        label=arm.name,
        spec=spec,
        plan=ArrivalPlan(rate=rate, warmup=10 if context.quick else WARMUP, seed=seed),
        targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds, tpot_seconds=PRESET.slo_tpot_seconds),
    )


def _row(name: str, results: Sequence[CellResult]) -> tuple[str, ...]:
    figures: tuple[Callable[[Figures], float], ...] = (
        lambda one: one.attainment,
        lambda one: one.ttft_attainment,
        lambda one: one.rejected_share,
        lambda one: one.hit_rate,
    )
    return (name, *(interval([100 * figure(result.figures) for result in results]) for figure in figures))


def interval(values: Sequence[float]) -> str:
    """Return the mean as text, with half of its 95 % interval if there are at least two values."""
    count = len(values)
    mean = fsum(values) / count
    if count < 2:
        return f"{mean:.1f}"
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (count - 1))
    return f"{mean:.1f} ± {STUDENT.get(count, 1.96) * deviation / sqrt(count):.1f}"


SECTION = Section(name="apart", title="Routers that cannot ask each other", write=write)
