"""Tables of results for people: one per early rejection mode, each followed by the highest rate that each policy
sustains.
"""

from collections.abc import Iterator, Sequence
from math import fsum

from rich.table import Table

from fairlead.instances import Role
from fairlead_simulator.experiments.cells import CellResult

GOODPUT_ATTAINMENT = 0.9


def result_tables(results: Sequence[CellResult]) -> Iterator[Table]:
    """Yield tables with the means over seeds. They also show each policy's goodput, the largest tested rate at which at
    least 90 % of the requests are in time.
    """
    modes = list(dict.fromkeys(result.cell.spec.early_rejection for result in results))
    for mode in modes:
        of_mode = [result for result in results if result.cell.spec.early_rejection == mode]
        table = Table(title=f"early rejection {mode.lower()}", title_justify="left")
        table.add_column("policy", min_width=12, no_wrap=True)
        for name in (
            "rate/s",
            "in time",
            "refused",
            "TTFT p50",
            "p90",
            "p99",
            "TPOT p90 ms",
            "E2E p90",
            "hit",
            "of ideal",
            "CV",
            "migrated",
            "re-routed",
        ):
            table.add_column(name, justify="right", no_wrap=True)
        rates = list(dict.fromkeys(result.cell.plan.rate for result in of_mode))
        labels = list(dict.fromkeys(result.cell.label for result in of_mode))
        for rate in rates:
            for label in labels:
                same = [result for result in of_mode if result.cell.plan.rate == rate and result.cell.label == label]
                table.add_row(label, *_row(same), end_section=label == labels[-1])
        yield table
        goodputs = Table(title_justify="left")
        goodputs.add_column("policy")
        goodputs.add_column("largest tested rate with 90 % in time", justify="right")
        for label in labels:
            held = goodput([result for result in of_mode if result.cell.label == label])
            goodputs.add_row(label, "none tested" if held is None else f"{held:.2f}/s")
        yield goodputs


def scaling_lines(results: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for each run with scaling and each role. The line has the initial number of instances, and then each
    new number with the time of the change.
    """
    for result in results:
        if result.cell.scaling is None:
            continue
        spec, plan = result.cell.spec, result.cell.plan
        begun = {Role.BOTH: spec.instances, Role.PREFILL: spec.prefill_instances, Role.DECODE: spec.decode_instances}
        for role, count in begun.items():
            steps = [f"{change.replicas} at {change.at:,.0f} s" for change in result.sizes if change.role is role]
            if count:
                sizes = " → ".join([str(count), *steps])
                yield f"{result.cell.label} at {plan.rate:.2f}/s, seed {plan.seed}, instances of role {role.value}: {sizes}"


def goodput(results: Sequence[CellResult]) -> float | None:
    """Return the largest tested rate at which the mean attainment over seeds is at least 90 %; None if there is no such
    rate.
    """
    rates = sorted({result.cell.plan.rate for result in results}, reverse=True)
    for rate in rates:
        attainments = [result.figures.attainment for result in results if result.cell.plan.rate == rate]
        if fsum(attainments) / len(attainments) >= GOODPUT_ATTAINMENT:
            return rate
    return None


def _row(same: Sequence[CellResult]) -> list[str]:
    figures = [result.figures for result in same]
    hit, ideal = mean([one.hit_rate for one in figures]), mean([one.ideal_hit_rate for one in figures])
    return [
        _number(mean([one.rate_achieved for one in figures]), ".2f"),
        _number(mean([one.attainment for one in figures]), ".1%"),
        _number(mean([one.rejected_share for one in figures]), ".1%"),
        _number(mean([one.ttft_p50 for one in figures]), ".2f"),
        _number(mean([one.ttft_p90 for one in figures]), ".2f"),
        _number(mean([one.ttft_p99 for one in figures]), ".2f"),
        _number(None if (tpot := mean([one.tpot_p90 for one in figures])) is None else tpot * 1e3, ".1f"),
        _number(mean([one.e2e_p90 for one in figures]), ".2f"),
        _number(hit, ".1%"),
        _number(hit / ideal if hit is not None and ideal else None, ".0%"),
        _number(mean([one.load_cv for one in figures]), ".2f"),
        _number(mean([float(one.migrations) for one in figures]), ".0f"),
        _number(mean([float(one.reroutes) for one in figures]), ".0f"),
    ]


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if all are None."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
