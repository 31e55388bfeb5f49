"""EAR's thresholds: the load from which on an instance counts as hot, and the pause of a session after a move."""

from collections.abc import Sequence

from reproductions.ear_runs import Outcome, Variant, mean_figure, run_all, settings_for
from reproductions.runs import percent, table
from reproductions.sections import Context

SWEEP_RATE = 4.0
HOT = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Values of T_hot as shares of the TTFT target. With 0 an instance is hot whenever anything is pending."""
COOL = (1.0, 30.0, 120.0)


def write_thresholds(context: Context) -> str:
    """Run EAR with several values of T_hot and T_cool, and return the text about them."""
    hot, cool = (HOT[-2:], COOL[1:2]) if context.quick else (HOT, COOL)
    columns = [(seconds, True) for seconds in cool] + [(30.0, False)]
    variants = {(fraction, *column): _with_thresholds(fraction, *column) for fraction in hot for column in columns}
    found = run_all(context, "ear thresholds", settings_for(context, tuple(variants.values()), (SWEEP_RATE,), loops=(True,)))
    cells = {key: [one for one in found if one.setting.variant == variant] for key, variant in variants.items()}
    heading = ("T_hot", *(f"T_cool {seconds:g} s{'' if fetching else ', recomputing'}" for seconds, fetching in columns))
    rows = [(_hot_name(fraction), *(_cell(cells[fraction, *column]) for column in columns)) for fraction in hot]

    def best(fetching: bool) -> tuple[float, float, bool]:
        return min((key for key in cells if key[2] == fetching), key=lambda key: mean_figure(cells[key], lambda one: one.figures.ttft_p90))

    def spread(axis: int) -> float:
        """Return the largest ratio of two P90s whose settings differ only in this threshold."""
        p90s = {key: mean_figure(same, lambda one: one.figures.ttft_p90) for key, same in cells.items() if key[2]}
        return max(p90s[one] / p90s[other] for one in p90s for other in p90s if one[1 - axis] == other[1 - axis])

    fetched, computed = best(True), best(False)
    own = min(cells, key=lambda key: (abs(key[0] - 1.0), abs(key[1] - 30.0), not key[2]))
    slower = mean_figure(cells[own], lambda one: one.figures.ttft_p90) / mean_figure(cells[fetched], lambda one: one.figures.ttft_p90)
    advice = " Sessions like these want a lower `hot_slo_fraction`." if fetched[0] < 1 and slower > 1.1 else ""
    moves = mean_figure(cells[own], lambda one: one.moves_mean)
    kept = "keep migrations rare" if moves < 0.1 else f"make {moves:.2f} migrations a session"
    return f"""Closed loop with sessions for {SWEEP_RATE:g} requests per second, `ear` with its own target rule. Each cell: P90 of TTFT, hit rate,
migrations per session.

{table(heading, rows)}

The lowest P90 is at T_hot {_hot_name(fetched[0])} and T_cool {fetched[1]:g} s where contexts are fetched, and at T_hot {_hot_name(computed[0])} where they
are computed again. T_hot changes P90 by a factor of up to {spread(0):.1f}, T_cool by {spread(1):.2f}. The draft leaves both open; Fairlead's
defaults, 1 × SLO and 30 s, {kept} at {slower:.1f} times the lowest P90.{advice}"""


def _with_thresholds(fraction: float, cooldown_seconds: float, fetching: bool) -> Variant:
    hot: dict[str, float] = {"hot_slo_fraction": fraction} if fraction else {"hot_tokens": 0}
    label = f"ear, T_hot {_hot_name(fraction)}, T_cool {cooldown_seconds:g} s{'' if fetching else ', recomputing'}"
    return Variant(label=label, policy="ear", parameters=hot | {"cooldown_seconds": cooldown_seconds}, fetching=fetching)


def _hot_name(fraction: float) -> str:
    return f"{fraction:g} × SLO" if fraction else "0"


def _cell(same: Sequence[Outcome]) -> str:
    p90 = mean_figure(same, lambda one: one.figures.ttft_p90)
    return (
        f"{p90:.2f} s, {percent(mean_figure(same, lambda one: one.figures.hit_rate))}, {mean_figure(same, lambda one: one.moves_mean):.2f}"
    )
