"""Use cases: which engine a pool is simulated by, and storing one that was fitted to its requests."""

from dataclasses import fields, replace
from datetime import datetime
from math import isfinite
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.engine_fits import MOST_POINTS, EngineFit, FitAccuracy, PoolEngine, ServedRequests

LONGEST_SOURCE = 400


class EngineFitStore(Protocol):
    """Fits in the database. All raise NotFound for a pool that does not live."""

    async def engine(self, pool: PoolKey) -> PoolEngine: ...

    async def store(self, pool: PoolKey, fit: EngineFit | None, draft: AuditDraft, now: datetime) -> PoolEngine:
        """In place of the one before; None takes it away."""

    async def served(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> ServedRequests:
        """The newest so many requests of the window, oldest first."""


class EngineFits:
    """For people who operate pools; roles are settled before these are called."""

    def __init__(self, store: EngineFitStore) -> None:
        self._store = store

    async def engine(self, pool: PoolKey) -> PoolEngine:
        return await self._store.engine(pool)

    async def store(self, pool: PoolKey, fit: EngineFit, caller: Caller, now: datetime) -> PoolEngine:
        """Simulate the pool by this engine from now on. Raises InvalidInput."""
        check_fit(fit)
        errors = {"source": fit.source, "ttft_error": fit.ttft.mean_error, "tpot_error": fit.tpot.mean_error}
        draft = replace(caller.draft(AuditAction.ENGINE_FITTED, str(pool)), after=errors)
        return await self._store.store(pool, fit, draft, now)

    async def forget(self, pool: PoolKey, caller: Caller, now: datetime) -> PoolEngine:
        """Simulate the pool by a preset again."""
        return await self._store.store(pool, None, caller.draft(AuditAction.ENGINE_FITTED, str(pool)), now)

    async def served(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> ServedRequests:
        return await self._store.served(pool, start, end, most)


def check_fit(fit: EngineFit) -> None:
    """Raises InvalidInput for a fit that cannot be simulated, or that says what no fit does."""
    fault = fit.costs.fault()
    if fault is not None:
        raise InvalidInput(f"costs.{fault[0]}", fault[1], fault[2])
    if not 1 <= len(fit.source) <= LONGEST_SOURCE or not fit.source.isprintable():
        raise InvalidInput("source", fit.source[:80], f"write what it was fitted to, in 1 to {LONGEST_SOURCE} characters")
    for name, one in (("ttft", fit.ttft), ("tpot", fit.tpot)):
        _check_accuracy(name, one)
    for name, points in (("ttft_points", fit.ttft_points), ("tpot_points", fit.tpot_points)):
        if len(points) > MOST_POINTS or not all(
            isfinite(value) and 0 <= value < 1e6 for one in points for value in (one.real, one.modelled)
        ):
            raise InvalidInput(name, len(points), f"write at most {MOST_POINTS} pairs of seconds")
    for name in ("engines", "requests", "fitted", "contradicting", "at_edges"):
        if not 0 <= getattr(fit, name) < 2**31:
            raise InvalidInput(name, getattr(fit, name), "write a number of requests or engines")


def _check_accuracy(name: str, one: FitAccuracy) -> None:
    for field in fields(one):
        value = getattr(one, field.name)
        if field.name == "correlation":
            if value is not None and not -1.001 <= value <= 1.001:
                raise InvalidInput(f"{name}.correlation", value, "write a number from -1 to 1, or null")
        elif not (isfinite(value) and 0 <= value < 2**31):
            raise InvalidInput(f"{name}.{field.name}", value, "write a number from 0 on")
