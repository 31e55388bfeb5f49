"""The swings of prefill and decode load under early rejection, and whether a forecast damps them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fairlead.routing.contracts.vectors import FloatVector
from reproductions.mooncake_rejection import BOTH
from reproductions.mooncake_runs import PREFILL_INSTANCES, LoadSample, Outcome, average
from reproductions.runs import table
from reproductions.sections import Context

RATE = BOTH.rates[1]
SHOWN = {"Load": ("#d55e00", "o"), "Predicted": ("#0072b2", "s")}
LONGEST_LAG = 60
DAMPED = 0.9
"""The ratio of two swings below which the smaller counts as damped."""
SWINGS = 0.3
"""The difference of P95 and P5 of the prefill load (whose limit is 1) above which the text says that a pool swings."""
SMOOTHED_OVER = 10
"""The number of samples (seconds) that are averaged before a comparison, because the trace has a burst every few
seconds.
"""


def describe(context: Context, outcomes: Sequence[Outcome]) -> str:
    """Return the part on oscillation as Markdown, and write its plot."""
    rate = min(one.trial.rate for one in outcomes if one.trial.decode_instances == BOTH.decode_instances) if context.quick else RATE
    chosen = [one for one in outcomes if one.trial.decode_instances == BOTH.decode_instances and one.trial.rate == rate]
    by_mode = {mode: [one.loads for one in chosen if one.trial.mode == mode] for mode in SHOWN}
    _plot({mode: series[0] for mode, series in by_mode.items()}, context.image("mooncake-oscillation.png"))
    rows = [_row(mode, series) for mode, series in by_mode.items()]
    swing = {mode: average([spread(prefill(one)) for one in series]) for mode, series in by_mode.items()}
    decode_swing = {mode: average([spread(decode(one)) for one in series]) for mode, series in by_mode.items()}
    together = average([correlation(smoothed(prefill(one)), smoothed(decode(one))) for one in by_mode["Load"]])
    ahead = average([lagged(one)[0] for one in by_mode["Load"]])
    behind = average([lagged(one)[2] for one in by_mode["Load"]])
    damped = {
        "prefill": swing["Predicted"] < DAMPED * swing["Load"],
        "decode": decode_swing["Predicted"] < DAMPED * decode_swing["Load"],
    }
    said = "; ".join(f"of {side} load {'reproduced' if found else 'not reproduced'}" for side, found in damped.items())
    at_once = "negatively" if together < -0.05 else "positively" if together > 0.05 else "hardly"
    stepped = (
        "because decodes follow their prefills: the swings are out of step by part of a period rather than exactly opposed"
        if min(behind, -ahead) > abs(together)
        else "no more than at the same instant: no step between the swings is seen here"
    )
    swings = (
        """Under `Load` the pool swings: while decodes are few a long queue of prefills is let in, which later overfills the decode instances, whereupon all
are refused until prefill instances run dry."""
        if swing["Load"] > SWINGS
        else f"Under `Load` the prefill load hardly swings here (P95 − P5 {swing['Load']:.2f})."
    )
    heading = (
        "early rejection",
        "prefill load, mean",
        "its P95 − P5",
        "decode load, mean",
        "its P95 − P5",
        "correlation",
        "most negative",
        "most positive",
    )
    return f"""### Loads out of step

**Claim** (§7.3, Figures 9 and 10): refusing by the decode load of now makes prefill and decode loads swing in anti-phase, because what is admitted
decodes only a prefill later; refusing by the load forecast damps it.

**Run.** {PREFILL_INSTANCES}P+{BOTH.decode_instances}D at {rate:g}/s of the runs above; mean loads of the instances (predicted time over its limit)
every second, the first 15 % left out. Correlations are of loads averaged over {SMOOTHED_OVER} s; a lag of +20 s means that decode load follows prefill
load by 20 s. Means over seeds; the plot is of the real bursts.

{table(heading, rows)}

![Prefill and decode load over time](images/benchmarks/mooncake-oscillation.png)

{swings} At the same instant the two loads are {at_once} correlated ({together:+.2f}); shifted against each other they are correlated at
{behind:+.2f} and {ahead:+.2f}, {stepped}.

The forecast changes the swing of prefill load by {_change(swing)} (P95 − P5) and that of decode load by {_change(decode_swing)}: **damping {said}**."""


def prefill(loads: Sequence[LoadSample]) -> FloatVector:
    """Return the prefill loads."""
    return np.array([one.prefill for one in loads], dtype=np.float64)


def decode(loads: Sequence[LoadSample]) -> FloatVector:
    """Return the decode loads."""
    return np.array([one.decode for one in loads], dtype=np.float64)


def smoothed(values: FloatVector) -> FloatVector:
    """Return running means over `SMOOTHED_OVER` samples; the values themselves if there are fewer."""
    if len(values) < SMOOTHED_OVER:
        return values
    means: FloatVector = np.convolve(values, np.full(SMOOTHED_OVER, 1 / SMOOTHED_OVER), "valid")
    return means


def spread(values: FloatVector) -> float:
    """Return P95 minus P5 of the values; 0 if there are none."""
    return float(np.subtract(*np.percentile(values, [95, 5]))) if len(values) else 0.0


def correlation(one: FloatVector, other: FloatVector) -> float:
    """Return Pearson's correlation; 0 if one of the series does not vary."""
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def lagged(loads: Sequence[LoadSample]) -> tuple[float, int, float, int]:
    """Return the smallest correlation of prefill and decode load with its lag, and the largest with its lag, in
    seconds.

    Lags are at most `LONGEST_LAG` seconds and a quarter of the series.
    """
    first, second = smoothed(prefill(loads)), smoothed(decode(loads))
    longest = min(LONGEST_LAG, len(first) // 4)
    found = {
        lag: correlation(first[max(0, -lag) : len(first) - max(0, lag)], second[max(0, lag) : len(second) - max(0, -lag)])
        for lag in range(-longest, longest + 1)
    }
    least, most = min(found, key=lambda lag: found[lag]), max(found, key=lambda lag: found[lag])
    return found[least], least, found[most], most


def _row(mode: str, series: Sequence[Sequence[LoadSample]]) -> tuple[str, ...]:
    lags = [lagged(one) for one in series]
    return (
        mode,
        f"{average([float(prefill(one).mean()) if one else 0.0 for one in series]):.2f}",
        f"{average([spread(prefill(one)) for one in series]):.2f}",
        f"{average([float(decode(one).mean()) if one else 0.0 for one in series]):.2f}",
        f"{average([spread(decode(one)) for one in series]):.2f}",
        f"{average([correlation(smoothed(prefill(one)), smoothed(decode(one))) for one in series]):+.2f}",
        f"{average([least for least, _, _, _ in lags]):+.2f} at {average([lag for _, lag, _, _ in lags]):+.0f} s",
        f"{average([most for _, _, most, _ in lags]):+.2f} at {average([lag for _, _, _, lag in lags]):+.0f} s",
    )


def _change(swing: dict[str, float]) -> str:
    return f"{swing['Predicted'] / swing['Load'] - 1:+.0%}" if swing["Load"] else "nothing"


def _plot(series: dict[str, Sequence[LoadSample]], path: Path) -> None:
    """Plot both modes on the same axes: prefill load above, decode load below."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for mode, (colour, marker) in SHOWN.items():
        at = [one.at for one in series[mode]]
        style = {"color": colour, "marker": marker, "markevery": max(1, len(at) // 12), "markersize": 4, "linewidth": 1.2, "label": mode}
        upper.plot(at, prefill(series[mode]), **style)
        lower.plot(at, decode(series[mode]), **style)
    for axes in (upper, lower):
        axes.axhline(1, color="grey", linewidth=0.7, linestyle=":")
    upper.set(ylabel="mean prefill load", ylim=(0, None))
    lower.set(ylabel="mean decode load", xlabel="seconds")
    upper.legend(fontsize=8, loc="lower left", ncols=2)
    figure.suptitle("Loads over their limits, by early rejection mode (real bursts)", fontsize=10)
    figure.savefig(path, dpi=110, metadata={"Software": None})
