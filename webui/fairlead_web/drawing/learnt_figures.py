"""Describes routers' measurements of engines: a row for each quantity and router, and a sentence for each quantity."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.capabilities import NOTHING_KNOWN, EngineCapability, FigureWords, in_words
from fairlead.instances import Role
from fairlead.reports.engines import Quantity
from fairlead_client.resources.instances import LearntOfEngines
from fairlead_web.text import formats

TIMES = {Role.BOTH: (Quantity.PREFILL, Quantity.DECODE), Role.PREFILL: (Quantity.PREFILL,), Role.DECODE: (Quantity.DECODE,)}
"""For each role, the quantities that routers can measure on its instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The words for a measured quantity: its name, its unit on the page, and how routers measure it."""

    name: str
    unit: str
    teacher: str


WORDS = {
    Quantity.PREFILL: Wording(name="Prefill speed", unit="tokens/s", teacher="routers measure it from streamed answers"),
    Quantity.DECODE: Wording(name="Decode step", unit="ms", teacher="routers measure it from streamed answers that are not short"),
    Quantity.TEXT: Wording(
        name="Bytes per token", unit="", teacher="routers measure it from answers whose usage counts the prompt's tokens"
    ),
    Quantity.KV_CACHE: Wording(name="KV cache", unit="tokens", teacher="engines report it if their metrics contain its size"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRow:
    """One quantity as one router measured it; values are text in `unit`.

    `learnt` is the value that the router measured in `samples` observations, or the plain mean of the observations if
    there are too few for a value. The errors here are of this router's predictions; the sentence above the rows has
    means over all routers, weighted by samples.
    """

    name: str
    unit: str
    router: str
    learnt: str
    declared: str
    error: float | None
    declared_error: float | None
    samples: int
    in_use: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """The measurements of engines for a page. `sentences` summarize `rows`; there is one sentence for each quantity
    that could be measured.
    """

    sentences: list[str]
    rows: list[LearntRow]


def learnt_of(figures: Sequence[LearntOfEngines], quantities: Sequence[Quantity], known: EngineCapability = NOTHING_KNOWN) -> Learnt:
    """Return the measurements of these quantities, in this order. `known` has the values that the pool uses now."""
    named = {one.name: one for one in in_words(known)}
    found = {quantity: [one for one in figures if one.quantity == quantity] for quantity in quantities}
    return Learnt(
        sentences=[_sentence(quantity, told, named[WORDS[quantity].name]) for quantity, told in found.items()],
        rows=[_row(quantity, one) for quantity, told in found.items() for one in told],
    )


def _row(quantity: Quantity, one: LearntOfEngines) -> LearntRow:
    return LearntRow(
        name=WORDS[quantity].name,
        unit=WORDS[quantity].unit,
        router=one.router,
        learnt=_measured(quantity, one),
        declared=_value(quantity, one.declared),
        error=one.error,
        declared_error=one.declared_error,
        samples=one.samples if one.value is None else one.value_samples,
        in_use=one.in_use,
    )


def _sentence(quantity: Quantity, told: Sequence[LearntOfEngines], known: FigureWords) -> str:
    """Return a sentence with the quantity's value in use and its source, followed by the errors of predictions as means
    over routers, weighted by samples.
    """
    words = WORDS[quantity]
    if not known.value:
        return f"{words.name}: not measured yet; {words.teacher}."
    said = f"{words.name}: {known.value} ({known.source})"
    if not told:
        return f"{said}; {words.teacher}."
    declared = "" if told[0].declared is None or "declared" in known.source else f"; {_value(quantity, told[0].declared)} declared"
    error, declared_error = _mean([(one.error, one.samples) for one in told]), _mean([(one.declared_error, one.samples) for one in told])
    off = "" if error is None else f"; mean error {formats.share(error)}"
    if off and declared_error is not None:
        off += f", of the declared value {formats.share(declared_error)}"
    routers = [one.router for one in told]
    by = ", ".join(routers[:-1]) + " and " + routers[-1] if len(routers) > 1 else routers[0]
    return f"{said}{declared}{off}; seen by {by}."


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def _measured(quantity: Quantity, one: LearntOfEngines) -> str:
    if one.value is None or quantity is not Quantity.PREFILL:
        return _value(quantity, one.learnt if one.value is None else one.value)
    return formats.count(one.value)


def _value(quantity: Quantity, value: float | None) -> str:
    if value is None:
        return formats.NONE
    if quantity is Quantity.PREFILL:
        return formats.count(1 / value)
    if quantity is Quantity.KV_CACHE:
        return formats.count(value)
    return f"{value * 1000:.1f}" if quantity is Quantity.DECODE else f"{value:.2f}"
