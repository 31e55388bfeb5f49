"""The capabilities of an engine, each with the quality of its source. Speeds, sizes and start times come only from
here.

    measured > fitted > declared > unknown

A figure from a better source replaces a figure from a worse source. A request is refused, a session moved or a pool
scaled only because of observed figures, which were measured on this pool's own instances or fitted to its own requests.
Declared figures and guesses are only used to rank choices: a wrong ranking costs little, and the routed requests then
measure the right figure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import inf, isfinite


class Source(StrEnum):
    """The source of a figure, best source first."""

    MEASURED = "measured"
    """Observed recently on the pool's own instances."""
    FITTED = "fitted"
    """Predicted by an engine model whose constants were fitted to recorded requests."""
    DECLARED = "declared"
    """The pool's spec says so."""
    UNKNOWN = "unknown"


REMEMBERED_SECONDS = 7 * 86_400.0
"""Seconds for which an observed figure still counts after its last observation. The time is long because a pool may be
at zero over a weekend.
"""

SAME_TIME_SECONDS = 600.0
"""Observers are combined if the times of their newest observations differ by at most this many seconds. Engines may
have been slower or faster at the time of older observations.
"""

_RANKS = {source: rank for rank, source in enumerate(Source)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quantiles of the observations, in the figure's unit."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of an engine. `value` is None exactly when the source is unknown.

    The figure is based on `samples` observations, the newest of them `age_seconds` old; these are 0 and None if nothing
    was observed.
    """

    value: float | None = None
    source: Source = Source.UNKNOWN
    spread: Spread | None = None
    samples: int = 0
    age_seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.source is Source.UNKNOWN):
            raise ValueError(f"a figure of source {self.source} has the value {self.value}")

    @property
    def is_observed(self) -> bool:
        """Whether the figure was observed, and so may be a reason to refuse, move or scale."""
        return self.source in (Source.MEASURED, Source.FITTED)

    @property
    def observed(self) -> float | None:
        """The value, if it was observed; None otherwise."""
        return self.value if self.is_observed else None


UNKNOWN = Figure()


def declared(value: float | None) -> Figure:
    """Return a figure with the value from the spec; an unknown figure if the spec has no value."""
    return UNKNOWN if value is None else Figure(value=value, source=Source.DECLARED)


def value_of(figure: Figure) -> float:
    """Return the value of a figure. Raises ValueError if the figure is unknown."""
    if figure.value is None:
        raise ValueError("a figure is needed that is not known")
    return figure.value


def recalled(figure: Figure, seconds: float) -> Figure:
    """Return the same figure, `seconds` older."""
    return figure if figure.age_seconds is None else replace(figure, age_seconds=figure.age_seconds + max(0.0, seconds))


def agreed(figures: Sequence[Figure]) -> Figure:
    """Combine several observers' measurements of the same engines in the same minutes: the mean, weighted by samples.

    An observer is ignored if its newest observation is more than `SAME_TIME_SECONDS` older than the newest of all, or
    if its age is unknown while another observer's age is known. The spread is taken from the observer with the most
    samples, the age from the newest observation. The result is unknown if no observer measured anything.
    """
    measured = [one for one in figures if one.source is Source.MEASURED and one.value is not None]
    if not measured:
        return UNKNOWN
    newest_age = min((one.age_seconds for one in measured if one.age_seconds is not None), default=None)
    if newest_age is not None:
        oldest = newest_age + SAME_TIME_SECONDS
        measured = [one for one in measured if one.age_seconds is not None and one.age_seconds <= oldest]
    weights = [max(1, one.samples) for one in measured]
    return Figure(
        value=sum((one.value or 0.0) * weight for one, weight in zip(measured, weights, strict=True)) / sum(weights),
        source=Source.MEASURED,
        spread=max(measured, key=lambda one: one.samples).spread,
        samples=sum(one.samples for one in measured),
        age_seconds=newest_age,
    )


def source_words(figure: Figure, sample: str) -> str:
    """Return words for a figure's source; `sample` names one observation. Examples: `measured, 41 prefills, 20 s ago`,
    `declared, not measured yet`.
    """
    match figure.source:
        case Source.MEASURED:
            age = "" if figure.age_seconds is None else f", {_age(figure.age_seconds)} ago"
            return f"measured, {figure.samples:,} {sample if figure.samples == 1 else f'{sample}s'}{age}"
        case Source.FITTED:
            age = "" if figure.age_seconds is None else f", fitted {_age(figure.age_seconds)} ago"
            return f"fitted to {figure.samples:,} recorded requests{age}, not measured yet"
        case Source.DECLARED:
            return "declared, not measured yet"
    return "unknown"


def _age(seconds: float) -> str:
    unit, name = next((one for one in _UNITS if seconds >= 2 * one[0]), (1.0, "s"))
    return f"{seconds / unit:.0f} {name}"


_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
"""Units for an age in words. An age is given in the largest unit in which it is at least two."""


def best(*figures: Figure) -> Figure:
    """Return the figure from the best source, the first among equal sources; an unknown figure if there are no
    figures.
    """
    return min(figures, key=lambda figure: _RANKS[figure.source], default=UNKNOWN)


def newest(*figures: Figure) -> Figure:
    """Return the figure from the best source; among equal sources, the figure that was observed last."""
    return min(figures, key=lambda one: (_RANKS[one.source], inf if one.age_seconds is None else one.age_seconds), default=UNKNOWN)


def spread_of(weighed: Iterable[tuple[float, float]]) -> Spread | None:
    """Return the quantiles of values, each with its weight; None without a finite value of positive weight.

    For example, prefill seconds per token weighted by tokens: half of all tokens took at most `p50` each.
    """
    kept = sorted((value, weight) for value, weight in weighed if isfinite(value) and weight > 0)
    if not kept:
        return None
    total = sum(weight for _, weight in kept)
    return Spread(p10=_quantile(kept, 0.1 * total), p50=_quantile(kept, 0.5 * total), p90=_quantile(kept, 0.9 * total))


def _quantile(ordered: list[tuple[float, float]], below: float) -> float:
    summed = 0.0
    for value, weight in ordered:
        summed += weight
        if summed >= below:
            return value
    return ordered[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapability:
    """The capability of one instance, measured over all instances of its pool."""

    prefill_tokens_per_second: Figure = UNKNOWN
    """Uncached prompt tokens that an instance computes per second while it is computing prompts."""
    decode_step_seconds: Figure = UNKNOWN
    """Seconds per output token after the first, as one request sees it."""
    bytes_per_token: Figure = UNKNOWN
    """Bytes of prompt text per token."""
    kv_cache_tokens: Figure = UNKNOWN
    start_seconds: Figure = UNKNOWN
    """Seconds from the creation of an instance until it serves."""


NOTHING_KNOWN = EngineCapability()


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureWords:
    """A figure as people read it; `value` and `spread` are empty if nothing is known."""

    name: str
    value: str
    source: str
    spread: str


_WORDINGS = (
    ("prefill_tokens_per_second", "Prefill speed", "{:,.0f}", "tokens/s", 1.0, "prefill"),
    ("decode_step_seconds", "Decode step", "{:.1f}", "ms", 1000.0, "answer"),
    ("kv_cache_tokens", "KV cache", "{:,.0f}", "tokens", 1.0, "engine"),
    ("bytes_per_token", "Bytes per token", "{:.2f}", "", 1.0, "prompt"),
    ("start_seconds", "Start", "{:.0f}", "s", 1.0, "start"),
)
"""For each figure: its name, its label, the format of its value, its unit, the factor from the stored unit to the shown
unit, and the name of one sample.
"""


def in_words(known: EngineCapability) -> list[FigureWords]:
    """Return all figures as text, with their sources."""
    return [_words(getattr(known, field), name, form, unit, times, sample) for field, name, form, unit, times, sample in _WORDINGS]


def _words(figure: Figure, name: str, form: str, unit: str, times: float, sample: str) -> FigureWords:
    value = "" if figure.value is None else f"{form.format(figure.value * times)} {unit}".rstrip()
    ends = () if figure.spread is None else (figure.spread.p10, figure.spread.p90)
    spread = " to ".join(form.format(one * times) for one in ends)
    return FigureWords(name=name, value=value, source=source_words(figure, sample), spread=spread)


def joined(*found: EngineCapability) -> EngineCapability:
    """Combine capabilities: for each figure, take the figure from the best source; among equal sources, the first."""
    return EngineCapability(
        **{one.name: best(*(getattr(capability, one.name) for capability in found)) for one in fields(EngineCapability)}
    )
