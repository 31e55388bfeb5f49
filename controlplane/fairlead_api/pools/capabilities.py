"""The capability (speeds and sizes) of a pool's engines, combined from all sources: measured now, measured earlier,
fitted, declared. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from fairlead.capabilities import (
    NOTHING_KNOWN,
    REMEMBERED_SECONDS,
    UNKNOWN,
    EngineCapability,
    Figure,
    Source,
    Spread,
    agreed,
    joined,
    recalled,
)
from fairlead.reports.engines import EngineMemory, Quantity
from fairlead.tables import EngineFigures, RoutingTable
from fairlead_client.resources.engine_fits import EngineFit
from fairlead_client.resources.instances import LearntOfEngines

_QUANTITIES: Mapping[str, str] = {
    "prefill_tokens_per_second": Quantity.PREFILL,
    "decode_step_seconds": Quantity.DECODE,
    "bytes_per_token": Quantity.TEXT,
    "kv_cache_tokens": Quantity.KV_CACHE,
}
"""The quantities that routers measure, by the name of the capability's field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLine:
    """The coefficients of the line that gives the duration of a decode step at any load (`LearntFigure.line`). Routers
    last observed decode steps at the Unix time `at`.
    """

    coefficients: tuple[float, float, float]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A stored, earlier measurement of engines of the kind `kind`, made at the Unix time `at`."""

    at: float
    kind: str
    capability: EngineCapability
    line: DecodeLine | None = None


def line_of(told: Sequence[LearntOfEngines], now: float) -> DecodeLine | None:
    """Return the decode line of a live router: the line that is based on the most responses. None if no router has a
    line. A mean of several routers' lines would fit none of their measurements.
    """
    fitted_here = [one for one in told if one.quantity == Quantity.DECODE and len(one.line) == 3 and one.age_seconds is not None]
    best = max(fitted_here, key=lambda one: one.value_samples, default=None)
    if best is None:
        return None
    base, per_tokens, per_requests = best.line
    return DecodeLine(coefficients=(base, per_tokens, per_requests), at=now - (best.age_seconds or 0.0))


def known_line(
    now_measured: DecodeLine | None, before: Remembered | None, kind: str, fit: EngineFit | None, now: float
) -> tuple[float, ...]:
    """Return the coefficients of the line that gives the duration of a decode step (`DecodeLine`). The first known
    source is used: measured now, measured within the last week on the same engines, or fitted to recorded requests.
    Empty if no source is known.
    """
    line = now_measured or _line_before(before, kind, now)
    if line is not None:
        return line.coefficients
    costs = None if fit is None else fit.costs
    return () if costs is None else (costs.decode_fixed, 1e5 * costs.decode_per_context_token, 100 * costs.decode_per_sequence)


def _line_before(before: Remembered | None, kind: str, now: float) -> DecodeLine | None:
    if before is None or before.line is None or before.kind != kind or now - before.line.at > REMEMBERED_SECONDS:
        return None
    return before.line


def measured(told: Sequence[LearntOfEngines]) -> EngineCapability:
    """Return the figures that live routers measured over all of the pool's instances."""
    return EngineCapability(
        **{name: _agreed(quantity, [_figure(one) for one in told if one.quantity == quantity]) for name, quantity in _QUANTITIES.items()}
    )


def _agreed(quantity: str, figures: Sequence[Figure]) -> Figure:
    """Combine the routers' measurements of one quantity, and add up their sample counts. The sample counts of the KV
    cache's size are not added up, because all routers read the size from the same engines.
    """
    found = agreed(figures)
    return replace(found, samples=max((one.samples for one in figures), default=0)) if quantity == Quantity.KV_CACHE else found


def _figure(one: LearntOfEngines) -> Figure:
    if one.value is None:
        return UNKNOWN
    known = one.p10 is not None and one.p50 is not None and one.p90 is not None
    spread = Spread(p10=one.p10 or 0.0, p50=one.p50 or 0.0, p90=one.p90 or 0.0) if known else None
    return Figure(value=one.value, source=Source.MEASURED, spread=spread, samples=one.value_samples, age_seconds=one.age_seconds)


def remembering(
    now_measured: EngineCapability, before: Remembered | None, kind: str, now: float, line: DecodeLine | None = None
) -> Remembered | None:
    """Return the capability to store for later, combined from the present and the earlier measurements. None if engines
    of this kind were never measured.
    """
    found = joined(now_measured, still_known(before, kind, now))
    if found == NOTHING_KNOWN:
        return None
    return Remembered(at=now, kind=kind, capability=found, line=line or _line_before(before, kind, now))


def capability_of(
    now_measured: EngineCapability, before: Remembered | None, kind: str, fit: EngineFit | None, engine: EngineFigures, now: datetime
) -> EngineCapability:
    """Return the engines' capability, with each figure from the best source that has it."""
    return joined(observed_of(now_measured, before, kind, fit, now), engine.declared)


def of_instance(own: EngineCapability, pool: EngineCapability) -> EngineCapability:
    """Return an instance's capability. It has the instance's own speeds `own`, and the pool's figures for quantities
    that routers measure only for the whole pool.
    """
    return replace(own, bytes_per_token=pool.bytes_per_token, kv_cache_tokens=pool.kv_cache_tokens)


def observed_of(
    now_measured: EngineCapability, before: Remembered | None, kind: str, fit: EngineFit | None, now: datetime
) -> EngineCapability:
    """Return the engines' capability, with the best value of each figure that was observed with the pool's own
    requests.
    """
    remembered = still_known(before, kind, now.timestamp())
    return joined(now_measured, remembered, NOTHING_KNOWN if fit is None else fitted(fit, now))


def memory_of(observed: EngineCapability, table: RoutingTable, now: float, line: tuple[float, ...] = ()) -> EngineMemory:
    """Return the observed capability in the form that a starting router accepts.

    Token counts use the bytes per token that routers measured, otherwise the declared number. The figures are for the
    pool's present engine, regardless of its instances' revisions.
    """
    bytes_per_token = observed.bytes_per_token.observed
    return EngineMemory(
        pool=table.pool,
        uid=table.uid,
        model=table.model,
        at=now,
        counted_by=float(table.engine.bytes_per_token) if bytes_per_token is None else bytes_per_token,
        known=observed,
        decode_fit=line,
    )


def fitted(fit: EngineFit, now: datetime) -> EngineCapability:
    """Return the engines' capability according to the engine model that was fitted to the pool's requests."""
    age = max(0.0, (now - fit.fitted_at).total_seconds())
    known = Figure(value=fit.costs.prefill_tokens_per_second(), source=Source.FITTED, samples=fit.fitted, age_seconds=age)
    return EngineCapability(prefill_tokens_per_second=known, decode_step_seconds=replace(known, value=fit.costs.decode_step_seconds()))


def still_known(before: Remembered | None, kind: str, now: float) -> EngineCapability:
    """Return the stored measurements if they are of the same kind of engines, with their present age."""
    if before is None or before.kind != kind:
        return NOTHING_KNOWN
    passed = max(0.0, now - before.at)
    aged = {one.name: recalled(getattr(before.capability, one.name), passed) for one in fields(EngineCapability)}
    return EngineCapability(**{name: one for name, one in aged.items() if (one.age_seconds or 0.0) <= REMEMBERED_SECONDS})
