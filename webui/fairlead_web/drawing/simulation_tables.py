"""The results of simulations as tables: each policy compared with the first policy at the same request rate, and two
simulations compared. Pure.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fairlead.amounts import amount
from fairlead_client.resources.simulations import SimulatedPolicy, Simulation, SimulationResult
from fairlead_web.forms.simulation_forms import policy_text
from fairlead_web.text import formats


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A difference as text with its sign, and whether it is an improvement: None if the difference is too small to
    show.
    """

    words: str
    better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure as text, and its difference from the figure of the reference policy. The difference is None in the
    reference policy's own row.
    """

    words: str
    delta: Delta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A policy at one request rate. `place` is the policy's index in the simulation; `cells` are in the order of
    FIGURES.
    """

    place: int
    policy: str
    won: bool
    result: SimulationResult
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """The results of all policies at one request rate. For each name in CHARTS, `charts` has one bar per policy: the
    policy, the bar's length in % of the longest bar, and its text.
    """

    rate: float
    requests_per_second: float
    rows: tuple[ResultRow, ...]
    charts: tuple[tuple[str, tuple[tuple[str, float, str], ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A column of the tables. If `share` is True, differences are in percentage points."""

    words: str
    value: Callable[[SimulationResult], float | None]
    share: bool
    more_is_better: bool


FIGURES = (
    _Figure(words="In time", value=lambda one: one.attainment, share=True, more_is_better=True),
    _Figure(words="Refused", value=lambda one: one.refused_share, share=True, more_is_better=False),
    _Figure(words="TTFT p50", value=lambda one: one.ttft_p50, share=False, more_is_better=False),
    _Figure(words="TTFT p90", value=lambda one: one.ttft_p90, share=False, more_is_better=False),
    _Figure(words="TTFT p99", value=lambda one: one.ttft_p99, share=False, more_is_better=False),
    _Figure(words="TPOT p90", value=lambda one: one.tpot_p90, share=False, more_is_better=False),
    _Figure(words="Hit rate", value=lambda one: one.hit_rate, share=True, more_is_better=True),
)
HEADS = tuple(one.words for one in FIGURES)
_CHARTS = (FIGURES[0], FIGURES[3], FIGURES[6])


def rate_tables(found: Simulation) -> list[RateTable]:
    """Return a table for each request rate. Differences are from the first policy at the same rate."""
    tables = []
    for rate in found.rates:
        results = [one for one in found.results if one.rate == rate]
        if not results:
            continue
        rows = tuple(_row(found, one, None if one is results[0] else results[0]) for one in results)
        charts = tuple((figure.words, _bars(figure, rows)) for figure in _CHARTS)
        tables.append(RateTable(rate=rate, requests_per_second=results[0].requests_per_second, rows=rows, charts=charts))
    return tables


def compared(mine: Simulation, other: Simulation) -> list[tuple[str, float, tuple[Cell, ...]]]:
    """Return the results that both simulations have, each as policy, request rate and figures. Differences are the
    figures of `mine` minus the figures of `other`.
    """
    known = {_key(one): one for one in other.results}
    return [
        (_words(one), one.rate, tuple(_cell(figure, one, known[_key(one)]) for figure in FIGURES))
        for one in mine.results
        if _key(one) in known
    ]


def conditions(mine: Simulation, other: Simulation) -> list[tuple[str, str, str]]:
    """Return the conditions in which two simulations differ, each as a name and the text for each simulation."""
    pairs = [(name, one, two) for (name, one), (_, two) in zip(_inputs(mine), _inputs(other), strict=True)]
    return [(name, one, two) for name, one, two in pairs if one != two]


def command_of(found: Simulation) -> str:
    """Return the command that reproduces the simulation's results. For an uploaded trace, the person must fill in the
    file name.
    """
    words = ["fairlead", "what-if", "run", found.pool]
    for policy in found.policies:
        words += ["--policy", policy_text(policy)]
    for rate in found.rates:
        words += ["--rate", f"{rate:g}"]
    if found.start and found.end:
        words += ["--from", _instant(found.start), "--to", _instant(found.end)]
    else:
        words += ["--trace", "FILE"]
    for name in ("replicas", "prefill_replicas", "decode_replicas"):
        if getattr(found, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(found, name))]
    if found.engine is not None:
        words += ["--engine", found.engine.value]
    return shlex.join([*words, "--seed", str(found.seed)])


def size_words(found: Simulation) -> str:
    """Describe the instances that were simulated: their number and roles."""
    if found.replicas is not None:
        return amount(found.replicas, "instance")
    return f"{formats.count(found.prefill_replicas)} prefill and {amount(found.decode_replicas, 'decode instance')}"


def window_words(found: Simulation) -> str:
    """Describe the source of the simulated requests: an uploaded trace, or the time in which they were recorded."""
    if found.start is None or found.end is None:
        return "an uploaded trace"
    return f"recorded {formats.clock(found.start)} to {formats.clock(found.end)} UTC"


def _inputs(found: Simulation) -> list[tuple[str, str]]:
    return [
        ("Traffic", window_words(found)),
        ("Requests", formats.count(found.requests)),
        ("Pool", size_words(found)),
        ("Engine", found.engine.value if found.engine else "as in the pool"),
        ("Seed", str(found.seed)),
    ]


def _row(found: Simulation, one: SimulationResult, first: SimulationResult | None) -> ResultRow:
    place = found.policies.index(SimulatedPolicy(policy=one.policy, parameters=one.parameters))
    cells = tuple(_cell(figure, one, first) for figure in FIGURES)
    return ResultRow(place=place, policy=_words(one), won=place == found.winner, result=one, cells=cells)


def _cell(figure: _Figure, one: SimulationResult, against: SimulationResult | None) -> Cell:
    value = figure.value(one)
    words = formats.share(value) if figure.share else formats.seconds(value)
    return Cell(words=words, delta=None if against is None else _delta(figure, value, figure.value(against)))


def _delta(figure: _Figure, value: float | None, against: float | None) -> Delta | None:
    if value is None or against is None:
        return None
    change = value - against
    sign = "+" if change > 0 else "−"
    size = f"{abs(change) * 100:.1f}" if figure.share else formats.seconds(abs(change))
    if size in {"0.0", formats.seconds(0.0)}:
        return Delta(words="±0", better=None)
    return Delta(words=f"{sign}{size}", better=(change > 0) == figure.more_is_better)


def _bars(figure: _Figure, rows: Sequence[ResultRow]) -> tuple[tuple[str, float, str], ...]:
    values = [figure.value(row.result) for row in rows]
    top = 1.0 if figure.share else max((value for value in values if value is not None), default=0.0) or 1.0
    place = FIGURES.index(figure)
    return tuple(
        (row.policy, round(100 * (value or 0.0) / top, 1), row.cells[place].words) for row, value in zip(rows, values, strict=True)
    )


def _key(one: SimulationResult) -> tuple[str, float]:
    return _words(one), one.rate


def _words(one: SimulationResult) -> str:
    return policy_text(SimulatedPolicy(policy=one.policy, parameters=one.parameters))


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
