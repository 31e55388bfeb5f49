"""Observations of engines in a form that survives a restart of the router: each router stores them on disk, and the
control API stores its own copy.

A router that starts uses the newest observations until it has measured the same figures itself. The danger is that the
pool has other engines now. Therefore values are ignored if they are implausible, older than a week, or from another
pool, model or revision. The first few prefills, answers and prompts replace the remembered figures, however much they
differ.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import isfinite

from fairlead.capabilities import NOTHING_KNOWN, REMEMBERED_SECONDS, UNKNOWN, EngineCapability, Figure, newest, recalled
from fairlead.reports.engines import EngineMemory
from fairlead.routing.knowledge.estimators import LONGEST_STEP_SECONDS
from fairlead.routing.knowledge.token_sizes import LEAST, MOST
from fairlead.tables import RoutingTable

PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "prefill_tokens_per_second": (1.0, 1e9),
    "decode_step_seconds": (1e-5, LONGEST_STEP_SECONDS),
    "bytes_per_token": (LEAST, MOST),
}
"""Plausible range of each figure. Figures without an entry here are not remembered."""

MOST_DECLARED = 64.0
"""Maximum bytes per token that a pool can declare."""


def keep(table: RoutingTable, known: EngineCapability, decode_fit: tuple[float, ...], now: float) -> EngineMemory:
    """Return the figures that this router has itself measured on the engines of `table`. Token counts use the token
    size of `table`.
    """
    return EngineMemory(
        pool=table.pool,
        uid=table.uid,
        model=table.model,
        at=now,
        counted_by=_bytes_per_token(table),
        known=known,
        decode_fit=decode_fit,
        revisions=_revisions(table),
    )


def believed(memory: EngineMemory, table: RoutingTable, now: float) -> EngineMemory | None:
    """Return the part of a memory that is still valid for the engines of `table`; None if no part is valid. Token
    counts are converted to the table's token size, and the ages of the figures are updated to `now`.
    """
    ours = _revisions(table)
    others = bool(memory.revisions and ours) and not set(memory.revisions) & set(ours)
    if (memory.pool, memory.uid, memory.model) != (table.pool, table.uid, table.model) or others:
        return None
    if not (LEAST <= memory.counted_by <= MOST_DECLARED and isfinite(memory.at)):
        return None
    known = _plausible(_as_of(memory.known, max(0.0, now - memory.at)))
    if known == NOTHING_KNOWN:
        return None
    fit = memory.decode_fit if len(memory.decode_fit) == 3 and all(map(isfinite, memory.decode_fit)) else ()
    return _counted(replace(memory, at=now, known=known, decode_fit=fit), _bytes_per_token(table))


def joined(first: EngineMemory | None, second: EngineMemory | None) -> EngineMemory | None:
    """Return one memory made of two. Each figure is taken from the better source or, if the sources are equally good,
    from the newer observation. None if both memories are None.
    """
    if first is None or second is None:
        return first or second
    both = {one.name: newest(getattr(first.known, one.name), getattr(second.known, one.name)) for one in fields(EngineCapability)}
    known = EngineCapability(**both)
    mine = known.decode_step_seconds is first.known.decode_step_seconds
    fit = first.decode_fit or second.decode_fit if mine else second.decode_fit or first.decode_fit
    return replace(first, known=known, decode_fit=fit)


def decode_coefficients(memory: EngineMemory) -> tuple[float, ...]:
    """Return the fitted coefficients of the decode step time or, without a fit, the coefficients of a constant step
    time; empty if neither is known.
    """
    step = memory.known.decode_step_seconds.observed
    if step is None:
        return ()
    return memory.decode_fit or (step, 0.0, 0.0)


def _as_of(known: EngineCapability, seconds: float) -> EngineCapability:
    return EngineCapability(**{one.name: recalled(getattr(known, one.name), seconds) for one in fields(EngineCapability)})


def _plausible(known: EngineCapability) -> EngineCapability:
    return EngineCapability(**{name: _within(getattr(known, name), *ends) for name, ends in PLAUSIBLE.items()})


def _within(figure: Figure, least: float, most: float) -> Figure:
    value, age = figure.observed, figure.age_seconds
    return figure if value is not None and least <= value <= most and age is not None and 0 <= age <= REMEMBERED_SECONDS else UNKNOWN


def _counted(memory: EngineMemory, bytes_per_token: float) -> EngineMemory:
    """Return the memory with its token counts converted to tokens of this many bytes."""
    times, speed, fit = memory.counted_by / bytes_per_token, memory.known.prefill_tokens_per_second, memory.decode_fit
    if times == 1.0:
        return memory
    counted = UNKNOWN if speed.value is None else replace(speed, value=speed.value * times, spread=None)
    return replace(
        memory,
        counted_by=bytes_per_token,
        known=replace(memory.known, prefill_tokens_per_second=counted),
        decode_fit=(fit[0], fit[1] / times, fit[2]) if fit else (),
    )


def _bytes_per_token(table: RoutingTable) -> float:
    return table.engine.block_bytes / table.engine.block_tokens


def _revisions(table: RoutingTable) -> tuple[str, ...]:
    return tuple(sorted({entry.revision for entry in table.instances if entry.accepting and entry.revision}))
