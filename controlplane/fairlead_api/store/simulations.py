"""Simulations in Postgres: asked for by people, claimed and finished by the process that runs them."""

import zlib
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec
from psycopg.errors import UniqueViolation
from sqlalchemy import ColumnElement, Select, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import ACCEPTING, Role
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Conflict, NotFound
from fairlead_api.services.simulations.asking import Inputs, PoolAtPresent
from fairlead_api.services.simulations.running import Claimed, Traffic
from fairlead_api.services.simulations.simulations import most_requests
from fairlead_api.services.spans import Span
from fairlead_api.store import audit, tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import page
from fairlead_api.store.pools.rows import pool_row
from fairlead_api.store.records import read
from fairlead_client.resources.pages import Page
from fairlead_client.resources.simulations import (
    SimulatedPolicy,
    Simulation,
    SimulationItem,
    SimulationResult,
    SimulationState,
    TraceRequest,
)
from fairlead_client.simulation_jobs import SimulatedTarget

runs, requests, pools, instances = tables.simulations, tables.recorded_requests, tables.pools, tables.instances

SILENCE = text("interval '15 seconds'")
"""A runner that was not heard for so long has ended or hangs; another one may claim its simulation."""
MOST_ATTEMPTS = 2

_AT_WORK = runs.c.state.in_([SimulationState.QUEUED, SimulationState.RUNNING])


class PostgresSimulations:
    """Implements `services.simulations.SimulationStore` and `services.simulations.running.RunningStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def present(self, pool: PoolKey) -> PoolAtPresent:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            if row.facts is None:
                raise NotFound("usable spec of pool", str(pool))
            accepting = func.count().filter(instances.c.state.in_(sorted(ACCEPTING)))
            counted = select(instances.c.role, accepting).where(instances.c.pool_id == row.id, instances.c.gone_at.is_(None))
            found = (await connection.execute(counted.group_by(instances.c.role))).all()
        declared = [role["name"] for role in (row.spec or {}).get("roles") or () if isinstance(role, dict) and "name" in role]
        numbers = dict.fromkeys(map(Role, declared), 0) | {Role(role): int(count) for role, count in found}
        return PoolAtPresent(facts=msgspec.convert(row.facts, MirroredFacts).table, instances=numbers)

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            newest = select(requests.c.at).where(*_within(row.id, start, end)).limit(most).subquery()
            return int((await connection.execute(select(func.count()).select_from(newest))).scalar_one())

    async def add(self, pool: PoolKey, simulation_id: str, inputs: Inputs, total: int, draft: AuditDraft, now: datetime) -> Simulation:
        start, end = inputs.window or (None, None)

        async def work(connection: AsyncConnection) -> Simulation:
            row = await pool_row(connection, pool)
            await connection.execute(
                insert(runs).values(
                    id=simulation_id,
                    pool_id=row.id,
                    state=SimulationState.QUEUED,
                    created_at=now,
                    created_by=draft.actor,
                    policies=msgspec.to_builtins(inputs.policies),
                    rates=inputs.rates,
                    seed=inputs.seed,
                    target=msgspec.to_builtins(inputs.target),
                    start=start,
                    end=end,
                    trace=None if inputs.trace is None else zlib.compress(msgspec.json.encode(inputs.trace), 1),
                    total=total,
                )
            )
            await audit.append(connection, [draft], now)
            return await _get(connection, pool, simulation_id)

        try:
            return await self._database.writing(work)
        except IntegrityError as error:
            if not isinstance(error.orig, UniqueViolation):
                raise
            raise Conflict("simulation-running", f"a simulation of pool {pool} is at work; wait for its end, or cancel it") from error

    async def simulations(self, pool: PoolKey, span: Span) -> Page[SimulationItem]:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(*_columns(SimulationItem)).where(runs.c.pool_id == row.id)
            order = (runs.c.created_at, runs.c.id)
            return await page(
                connection, query, order, lambda one: read(SimulationItem, one, pool=str(pool)), cursor=span.cursor, limit=span.limit
            )

    async def get(self, pool: PoolKey, simulation_id: str) -> Simulation:
        async with self._database.reading() as connection:
            return await _get(connection, pool, simulation_id)

    async def cancel(self, pool: PoolKey, simulation_id: str, draft: AuditDraft, now: datetime) -> Simulation:
        async def work(connection: AsyncConnection) -> Simulation:
            row = await pool_row(connection, pool)
            this = (runs.c.id == simulation_id, runs.c.pool_id == row.id, _AT_WORK)
            ended = await connection.execute(update(runs).where(*this).values(state=SimulationState.CANCELLED, finished_at=now))
            found = await _get(connection, pool, simulation_id)
            if ended.rowcount:
                await audit.append(connection, [draft], now)
            return found

        return await self._database.writing(work)

    async def claim(self, runner: str) -> Claimed | None:
        """The oldest simulation that nobody runs, for this runner; one whose runner fell silent twice fails."""
        silent = (runs.c.state == SimulationState.RUNNING) & (runs.c.heard_at < func.now() - SILENCE)

        async def work(connection: AsyncConnection) -> Claimed | None:
            given_up = update(runs).where(silent, runs.c.attempts >= MOST_ATTEMPTS)
            words = "the process that ran it ended, twice; ask for it again"
            await connection.execute(given_up.values(state=SimulationState.FAILED, error=words, finished_at=func.now()))
            free = or_(runs.c.state == SimulationState.QUEUED, silent)
            oldest = select(runs.c.id).where(free).order_by(runs.c.created_at).limit(1).with_for_update(skip_locked=True).scalar_subquery()
            taken = await connection.execute(
                update(runs)
                .where(runs.c.id == oldest)
                .values(
                    state=SimulationState.RUNNING,
                    runner=runner,
                    heard_at=func.now(),
                    started_at=func.coalesce(runs.c.started_at, func.now()),
                    attempts=runs.c.attempts + 1,
                    done=0,
                )
                .returning(runs)
            )
            row = taken.one_or_none()
            return None if row is None else _claimed(row)

        return await self._database.writing(work)

    async def traffic(self, claimed: Claimed) -> Traffic:
        """The requests to simulate, oldest first."""
        async with self._database.reading() as connection:
            if claimed.window is None:
                trace = (await connection.execute(select(runs.c.trace).where(runs.c.id == claimed.id))).scalar_one()
                return Traffic.uploaded(msgspec.json.decode(zlib.decompress(trace), type=list[TraceRequest]))
            most = most_requests(len(claimed.policies) * len(claimed.rates))
            order = (requests.c.at.desc(), requests.c.session, requests.c.prompt_tokens, requests.c.blocks)
            wanted = (requests.c.at, requests.c.session, requests.c.prompt_tokens, requests.c.output_tokens, requests.c.blocks)
            query = select(*wanted, requests.c.sample_rate).where(*_within(claimed.pool_id, *claimed.window))
            rows = (await connection.execute(query.order_by(*order).limit(most))).all()
        return Traffic.recorded(rows[::-1])

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        """Says that the runner lives; whether it is to go on."""
        values = {"heard_at": func.now(), "done": done} | ({} if total is None else {"total": total})
        return await self._end(claimed, runner, values)

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        values = {"results": msgspec.to_builtins(results), "winner": winner, "notes": list(notes), "done": done}
        await self._end(claimed, runner, {"state": SimulationState.DONE, "finished_at": func.now(), "trace": None, **values})

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None:
        await self._end(claimed, runner, {"state": SimulationState.FAILED, "finished_at": func.now(), "trace": None, "error": why})

    async def _end(self, claimed: Claimed, runner: str, values: dict[str, Any]) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            mine = (runs.c.id == claimed.id, runs.c.state == SimulationState.RUNNING, runs.c.runner == runner)
            return bool((await connection.execute(update(runs).where(*mine).values(**values))).rowcount)

        return await self._database.writing(work)


def _within(pool_id: int, start: datetime, end: datetime) -> tuple[ColumnElement[bool], ...]:
    return requests.c.pool_id == pool_id, requests.c.at >= start, requests.c.at < end


def _columns(kind: type[SimulationItem]) -> list[Any]:
    return [runs.c[field.name] for field in fields(kind) if field.name in runs.c]


async def _get(connection: AsyncConnection, pool: PoolKey, simulation_id: str) -> Simulation:
    row = await pool_row(connection, pool)
    query: Select[Any] = select(*_columns(Simulation), runs.c.target).where(runs.c.id == simulation_id, runs.c.pool_id == row.id)
    found = (await connection.execute(query)).one_or_none()
    if found is None:
        raise NotFound("simulation", simulation_id)
    target = msgspec.convert(found.target, SimulatedTarget)
    return read(
        Simulation,
        found,
        pool=str(pool),
        replicas=target.instances or None,
        prefill_replicas=target.prefill_instances or None,
        decode_replicas=target.decode_instances or None,
        engine=target.engine,
        requests=found.total // (len(found.policies) * len(found.rates)),
        results=msgspec.convert(found.results or [], list[SimulationResult]),
        notes=found.notes or [],
    )


def _claimed(row: Any) -> Claimed:
    return Claimed(
        id=row.id,
        pool_id=row.pool_id,
        policies=msgspec.convert(row.policies, list[SimulatedPolicy]),
        rates=msgspec.convert(row.rates, list[float]),
        seed=row.seed,
        target=msgspec.convert(row.target, SimulatedTarget),
        window=None if row.start is None else (row.start, row.end),
    )
