"""Measures whether early refusal, and refusal by forecast, reduce the number of refused requests.

This is Mooncake's Table 3, in pools that are short of prefill, of decode or of both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead_simulator.experiments.arrival_plans import Workload, ideal_hits
from reproductions.mooncake_runs import (
    ENGINE,
    HEADROOM,
    MODES,
    PREFILL_INSTANCES,
    TPOT_SECONDS,
    Outcome,
    Trial,
    average,
)
from reproductions.runs import percent, table
from reproductions.sections import Context

PAPER_REFUSED: Final = (4_183, 3_771, 3_589)
PAPER_TPOT_SECONDS: Final = 0.1
ALIKE: Final = 1.03
"""Numbers of refusals count as equal if the largest is at most this multiple of the smallest."""
NAMES = {"AfterPrefill": "after prefill (baseline)", "Load": "load (early)", "Predicted": "predicted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A pool and the rates at which it is run. `short` names its scarce resource."""

    short: str
    decode_instances: int
    rates: tuple[float, ...]


BOTH = Regime(short="prefill and decode", decode_instances=4, rates=(16.0, 18.0, 20.0))
REGIMES = (
    Regime(short="prefill only", decode_instances=8, rates=(18.0,)),
    BOTH,
    Regime(short="decode first", decode_instances=3, rates=(14.0, 17.0)),
)


def trials(context: Context) -> list[Trial]:
    """Return the trials of every regime, rate, mode and seed; only one rate of each regime if quick."""
    return [
        Trial(decode_instances=regime.decode_instances, rate=rate, mode=mode, seed=seed)
        for regime in REGIMES
        for rate in (regime.rates[:1] if context.quick else regime.rates)
        for mode in MODES
        for seed in range(context.seeds)
    ]


def describe(loaded: Workload, outcomes: Sequence[Outcome]) -> str:
    """Return the part on refusals as Markdown."""
    first, early, forecast = PAPER_REFUSED
    limits = capacities(loaded)
    seeds = 1 + max(outcome.trial.seed for outcome in outcomes)
    limit = f"{1e3 * TPOT_SECONDS:.0f} ms"
    takes = {regime.decode_instances: regime.decode_instances * limits.decode for regime in REGIMES}
    so = (
        "So 8 decode instances are too many to be short, 4 run out about when prefill does, and 3 before it"
        if takes[8] > 1.3 * limits.prefill and 0.9 <= takes[4] / limits.prefill <= 1.3 and takes[3] < 0.9 * limits.prefill
        else "Together, " + ", ".join(f"{number} decode instances take {taken:.1f}" for number, taken in takes.items())
    )
    binds = "can never be what binds" if limits.full_step < PAPER_TPOT_SECONDS else "may bind there too"
    rows: list[Sequence[str]] = []
    verdicts: list[str] = []
    for regime in REGIMES:
        of_regime = [outcome for outcome in outcomes if outcome.trial.decode_instances == regime.decode_instances]
        for rate in sorted({outcome.trial.rate for outcome in of_regime}):
            by_mode = {mode: _of(of_regime, rate, mode) for mode in MODES}
            rows += [_row(regime, rate, mode, by_mode) for mode in MODES]
            verdicts.append(
                f"- {regime.short} short, {rate:g}/s: {verdict([refusals(by_mode[mode]) for mode in MODES])} {_in_time(by_mode)}"
            )
    heading = (
        "pool, requests/s",
        "refused when",
        "refused",
        "of all",
        "against baseline",
        "prefill wasted",
        "in time",
        "TTFT P90",
        "TPOT P90",
    )
    return f"""### Refusing early

**Claim** (Table 3; 8 prefill and 8 decode instances, 23,000 requests at twice their speed): refused {first:,} requests when the decode load is
looked at after the prefill, {early:,} when it is looked at on arrival ({early / first - 1:+.1%}), {forecast:,} when it is forecast for the
end of the prefill ({forecast / first - 1:+.1%}).

**Run.** {len(loaded.rows):,} requests of the trace scaled to the rates below, {seeds} seed(s): the first in the trace's real bursts (all of one stamp
at once), the others at random times between the stamps. Policy `mooncake`, preset `{ENGINE.name}`, {PREFILL_INSTANCES} prefill
instances. A decode instance of this preset holds {limits.fit:.0f} such
requests, whose step then takes {1e3 * limits.full_step:.0f} ms, so that the paper's TPOT limit of {1e3 * PAPER_TPOT_SECONDS:.0f} ms {binds}:
the limit here is {limit}, of which admission uses {HEADROOM:.0%}.
"In time" is TTFT below 30 s and TPOT of at most {limit}, of all that arrived. Means over seeds, with the range of refusals.

Early rejection can only save something where decodes *and* prefills are short. The prefill instances can take {limits.prefill:.1f} requests/s
with an endless common cache and {limits.prefill_cold:.1f} without any; each decode instance {limits.decode:.1f} at the limit of admission.
{so}: all three were run.

{table(heading, rows)}

{chr(10).join(verdicts)}

{_why(outcomes)}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """The capacities of the pool, in requests per second.

    `prefill` is that of all prefill instances with an endless cache, `prefill_cold` without a cache, and `decode` that
    of one decode instance at the limit of admission. `fit` is the number of mean requests that fill its memory, and
    `full_step` the seconds of a decode step with them.
    """

    prefill: float
    prefill_cold: float
    decode: float
    fit: float
    full_step: float


def capacities(loaded: Workload) -> Capacities:
    """Return the capacities of the preset for this workload."""
    ideal, _ = ideal_hits(loaded)
    rows, cost = loaded.rows, ENGINE.decode
    warm = average([ENGINE.prefill.seconds(max(1, row.input_length - hit), row.input_length) for row, hit in zip(rows, ideal, strict=True)])
    cold = average([ENGINE.prefill.seconds(row.input_length, row.input_length) for row in rows])
    context = average([row.input_length + row.output_length / 2 for row in rows])
    each = cost.per_sequence + cost.per_context_token * context
    limit = HEADROOM * TPOT_SECONDS
    fit = ENGINE.kv_tokens / context
    return Capacities(
        prefill=PREFILL_INSTANCES / warm,
        prefill_cold=PREFILL_INSTANCES / cold,
        decode=(limit - cost.fixed) / each / (limit * average([row.output_length for row in rows])),
        fit=fit,
        full_step=cost.fixed + fit * each,
    )


def _why(outcomes: Sequence[Outcome]) -> str:
    both = [one for one in outcomes if one.trial.decode_instances == BOTH.decode_instances]
    scarce = [one for one in outcomes if one.trial.decode_instances == REGIMES[-1].decode_instances]
    served = {mode: average([one.served_prompt for one in scarce if one.trial.mode == mode]) for mode in MODES}
    refused = {mode: average([one.refused_prompt for one in scarce if one.trial.mode == mode]) for mode in MODES}
    prompts = {mode: f"{served[mode]:,.0f} and {refused[mode]:,.0f}" for mode in MODES}
    dear = ": the dear ones are let in" if served["Predicted"] > 1.05 * refused["Predicted"] > 0 else ""
    older = average([one.older_share for one in both])
    roomy = [
        refusals(one for one in outcomes if (one.trial.decode_instances, one.trial.mode) == (REGIMES[0].decode_instances, mode))
        for mode in MODES
    ]
    alone = "differ little or not at all" if max(roomy) <= ALIKE * min(roomy) else "differ all the same"
    crowded = "hardly ever crowded" if max(roomy) <= ALIKE * min(roomy) else "seldom crowded"
    shares = {mode: average([one.figures.attainment for one in both if one.trial.mode == mode]) for mode in MODES}
    fewer = (
        "Fewer refusals are therefore not more requests in time, which the paper's table does not show."
        if max(shares, key=lambda mode: shares[mode]) == MODES[0]
        else f"In time are all the same {', '.join(f'{percent(shares[mode])} ({NAMES[mode]})' for mode in MODES)}."
    )
    forecast = [average([one.refused for one in scarce if one.trial.mode == mode]) for mode in MODES]
    harm = "then does harm of its own" if forecast[2] > max(forecast[:2]) else "has a weakness of its own"
    waste = average([one.wasted_share for one in both if one.trial.mode == "AfterPrefill"])
    return f"""Why it depends on what is short:

- With prefill alone short, decodes are {crowded}, and the modes {alone}.
- With both short, the baseline computes {percent(waste)} of its prompt tokens for nothing. Refusing early saves them; but a request is then admitted by
  the decodes of now, while prefills of up to 30 s stand between, and what was admitted is not refused any more: it decodes too slowly (see TPOT).
  {fewer} The baseline looks when nothing can go wrong any more.
- With decode short before prefill, decode instances bound what is served in every mode, and refusals tell how far beyond its limit each mode lets them
  run. The forecast {harm}: it asks when *this* request would decode but knows only what has arrived, and so finds the pool the
  emptier the longer the prompt. Mean prompt tokens of the served and of the refused were {prompts["Predicted"]} under `Predicted`,
  {prompts["Load"]} under `Load`{dear}.

One departure from the paper: it forecasts with a single decode time for all requests. Here {percent(older)} of the decodes under way at any moment are older
than the mean decode lasts; such a forecast takes all of these for gone and admits so many too many. Fairlead's uses the distribution of the last decodes
instead, which is the same where all last equally long."""


def verdict(refused: Sequence[float]) -> str:
    """Return the text on whether each mode refuses fewer requests than the mode before it.

    `refused` has the mean number of refusals of each of MODES.
    """
    base, early, forecast = refused
    told = " → ".join(f"{value:,.0f}" for value in refused)
    if max(refused) <= ALIKE * min(refused):
        return f"no difference, {told}."
    if base > early > forecast:
        return f"**reproduced**, {told}."
    better = [name for name, value in (("early", early), ("predicted", forecast)) if value < base]
    return f"**not reproduced**, {told}: fewer than the baseline {'with ' + ' and '.join(better) if better else 'with neither'}."


def refusals(outcomes: Iterable[Outcome]) -> float:
    """Return the mean number of refusals over seeds."""
    return average([outcome.refused for outcome in outcomes])


def _of(outcomes: Iterable[Outcome], rate: float, mode: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.trial.rate == rate and outcome.trial.mode == mode]


def _in_time(by_mode: dict[str, list[Outcome]]) -> str:
    shares = {mode: average([one.figures.attainment for one in found]) for mode, found in by_mode.items()}
    best = max(shares, key=lambda mode: shares[mode])
    return f"Most in time: {NAMES[best]} ({percent(shares[best])})."


def _row(regime: Regime, rate: float, mode: str, by_mode: dict[str, list[Outcome]]) -> tuple[str, ...]:
    found = by_mode[mode]
    base, count = refusals(by_mode["AfterPrefill"]), refusals(found)
    return (
        f"{PREFILL_INSTANCES}P+{regime.decode_instances}D, {rate:g}",
        NAMES[mode],
        f"{count:,.0f} ({min(one.refused for one in found):,} to {max(one.refused for one in found):,})",
        percent(average([one.figures.rejected_share for one in found])),
        f"{count / base - 1:+.1%}" if base and mode != "AfterPrefill" else "-",
        percent(average([one.wasted_share for one in found])),
        percent(average([one.figures.attainment for one in found])),
        f"{average([one.figures.ttft_p90 or 0.0 for one in found]):.1f} s",
        f"{1e3 * average([one.figures.tpot_p90 or 0.0 for one in found]):.0f} ms",
    )
