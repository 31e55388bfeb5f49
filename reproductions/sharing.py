"""Measures how requests affect each other that share a pool: fairness between tenants, and priority classes."""

from collections.abc import Callable, Sequence

from fairlead.tables import FAIR_TENANTS
from fairlead_simulator.experiments.cells import CellResult
from fairlead_simulator.experiments.measuring import Part
from reproductions.runs import mean, percent, table
from reproductions.sections import Context, Section
from reproductions.sharing_runs import (
    CLASS_LOAD,
    CLASS_PARTS,
    CLASSES,
    EQUAL,
    FLOOD,
    FLOODED,
    INSTANCES,
    LOADS,
    MODES,
    OTHERS,
    PRESET,
    REQUESTS,
    WARMUP,
    Runs,
    Trial,
    least,
    of,
    run_trials,
)

REJECTION = {"Disabled": "disabled", "Load": "by load"}


def write(context: Context) -> str:
    """Run the trials and return the section's text."""
    runs = run_trials(context)
    return "\n\n".join((_setting(context), _flood(runs), _equal(runs), _classes(runs)))


def _setting(context: Context) -> str:
    trace = "The conversation trace" if context.conversation else "Generated conversations"
    return f"""A question of our own, not a paper's claim: what becomes of some clients' requests while others send too much
([priorities.md](priorities.md) says what pools can declare).

**What was run.** {trace}, {REQUESTS:,} requests of which the first {WARMUP} are not measured, preset `{PRESET.name}`, {INSTANCES} instances, policy
`fairlead`, {context.seeds} seeds; rates are multiples of the estimated saturation of the whole. Each session is given to a tenant or a class by
chance. *In time* is a TTFT below {PRESET.slo_ttft_seconds:g} s, of all requests that came."""


def _flood(runs: Runs) -> str:
    rows = []
    for mode in MODES:
        for load in LOADS:
            for fairness in ("None", FAIR_TENANTS):
                results = runs[Trial(load=load, mode=mode, fairness=fairness, weights=tuple(FLOODED.items()))]
                rows.append(
                    (
                        f"{load:g}×, early rejection {REJECTION[mode]}, `{fairness}`",
                        percent(of(results, lambda part: part.tenant != FLOOD, lambda part: part.attainment)),
                        percent(least(results, lambda part: part.tenant != FLOOD)),
                        percent(of(results, lambda part: part.tenant != FLOOD, lambda part: part.rejected_share)),
                        f"{of(results, lambda part: part.tenant != FLOOD, lambda part: part.ttft_p90):.2f}",
                        percent(of(results, lambda part: part.tenant == FLOOD, lambda part: part.attainment)),
                        percent(of(results, lambda part: part.tenant == FLOOD, lambda part: part.rejected_share)),
                        percent(mean(results, lambda one: one.attainment)),
                    )
                )
    heading = (
        "load, `routing.fairness`",
        "others in time",
        "the least of them",
        "refused",
        "TTFT p90, s",
        "flood in time",
        "refused",
        "all in time",
    )
    return f"""### One tenant floods

Ten tenants, of which one sends ten times as much as each of the {len(OTHERS)} others.

{table(heading, rows)}"""


def _equal(runs: Runs) -> str:
    rows = []
    for mode in MODES:
        for load in LOADS:
            pair = [
                runs[Trial(load=load, mode=mode, fairness=fairness, weights=tuple(EQUAL.items()))] for fairness in ("None", FAIR_TENANTS)
            ]
            rows.append(
                (
                    f"{load:g}×, early rejection {REJECTION[mode]}",
                    *(percent(mean(results, lambda one: one.attainment)) for results in pair),
                    *(percent(least(results, lambda part: True)) for results in pair),
                )
            )
    heading = ("load", "in time, `None`", f"`{FAIR_TENANTS}`", "the least of the tenants, `None`", f"`{FAIR_TENANTS}`")
    return f"""### What fairness costs where nobody floods

The same with ten tenants that send alike. Nobody is protected here, so that what is lost is the price.

{table(heading, rows)}"""


def _classes(runs: Runs) -> str:
    rows = []
    for mode in MODES:
        for declared in (False, True):
            results = runs[Trial(load=CLASS_LOAD, mode=mode, declared=declared)]
            rows.append(
                (
                    f"early rejection {REJECTION[mode]}, {'classes' if declared else 'no classes'}",
                    *(percent(_of_class(results, name, lambda part: part.attainment)) for name in CLASS_PARTS),
                    *(percent(_of_class(results, name, lambda part: part.rejected_share)) for name in CLASS_PARTS),
                    percent(mean(results, lambda one: one.attainment)),
                )
            )
    heading = ("", *(f"{name} in time" for name in CLASS_PARTS), *(f"{name} refused" for name in CLASS_PARTS), "all in time")
    parts = ", ".join(f"{100 * part:g} % `{name}`" for name, part in CLASS_PARTS.items())
    told = "; ".join(f"`{one.name}` has priority {one.priority} and share {one.share:g}" for one in CLASSES)
    return f"""### Priority classes beyond saturation

Sessions of three classes at {CLASS_LOAD:g}×: {parts}.
{told}.

{table(heading, rows)}"""


def _of_class(results: Sequence[CellResult], name: str, figure: Callable[[Part], float | None]) -> float:
    return of(results, lambda part: part.priority_class == name, figure)


SECTION = Section(name="sharing", title="Tenants and priority classes", write=write)
