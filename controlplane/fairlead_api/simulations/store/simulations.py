"""Stores simulations in Postgres: people request them, and processes claim and finish them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec
from psycopg.errors import UniqueViolation
from sqlalchemy import ColumnElement, Select, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.engine_specs import SimulatedSpec
from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.scaling.remedies import Reach
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra import audit_log
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.paging import page
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.plans.stored_plans import LIFE
from fairlead_api.pools.store.capabilities import read_capability, stored_fit
from fairlead_api.simulations.asking import Inputs, PoolAtPresent, most_requests
from fairlead_api.simulations.expectations import MOST, TOO_LATE, Kept
from fairlead_api.simulations.expected_figures import Recorded, Trialled
from fairlead_api.simulations.running import Claimed, Traffic
from fairlead_api.simulations.sizing import Asked, simulated
from fairlead_client.resources.pages import Page
from fairlead_client.resources.simulations import (
    SimulatedPolicy,
    Simulation,
    SimulationItem,
    SimulationResult,
    SimulationState,
    TraceRequest,
)
from fairlead_client.simulation_jobs import JobRun, RunFigures, SimulatedTarget

runs, requests, pools, instances = tables.simulations, tables.recorded_requests, tables.pools, tables.instances

SILENCE = text("interval '15 seconds'")
"""Time without a report of a runner after which another runner may claim its simulation."""
MOST_ATTEMPTS = 2

_AT_WORK = runs.c.state.in_([SimulationState.QUEUED, SimulationState.RUNNING])
_ASKED = runs.c.plan.is_(None)
_RECORDED = text("""
SELECT sum(within_slo) AS within, sum(judged_by_slo) AS judged, sum(hit_tokens) AS hits, sum(prompt_tokens) AS tokens
FROM pool_rollups_10s WHERE pool_id = :pool AND bucket >= :start AND bucket < :end
""")
_MOVED = text("SELECT count(DISTINCT session) FROM migrations WHERE pool_id = :pool AND at >= :start AND at < :end")


class PostgresSimulations:
    """Implements `simulations.asking.SimulationStore`, `simulations.running.RunningStore`, and the parts of
    `simulations.expectations.ExpectationStore` that do not concern advice.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            if row.facts is None:
                raise NotFound("usable spec of pool", str(pool))
            accepting = func.count().filter(instances.c.state.in_(sorted(ACCEPTING)))
            counted = select(instances.c.role, accepting).where(instances.c.pool_id == row.id, instances.c.gone_at.is_(None))
            found = (await connection.execute(counted.group_by(instances.c.role))).all()
            of = (instances.c.pool_id == row.id, instances.c.gone_at.is_(None), instances.c.role != Role.DECODE)
            weighed = (
                select(instances.c.weight, instances.c.state).where(*of, instances.c.state.in_(sorted(ACCEPTING))).order_by(instances.c.id)
            )
            weights = [1.0 if one.state == InstanceState.WARMING else one.weight for one in await connection.execute(weighed)]
            fit, capability = await stored_fit(connection, row.id), await read_capability(connection, row, now)
            revisions = tables.pool_revisions.c
            newest = select(revisions.at).where(revisions.pool_id == row.id, revisions.number == row.revision)
            changed_at = (await connection.execute(newest)).scalar_one_or_none()
        declared = [role["name"] for role in (row.spec or {}).get("roles") or () if isinstance(role, dict) and "name" in role]
        numbers = dict.fromkeys(map(Role, declared), 0) | {Role(role): int(count) for role, count in found}
        return PoolAtPresent(
            facts=msgspec.convert(row.facts, MirroredFacts).table,
            instances=numbers,
            weights=weights,
            simulated=_simulated(row.spec),
            fit=fit,
            capability=capability,
            changed_at=changed_at,
        )

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
            await audit_log.append(connection, [draft], now)
            return await _get(connection, pool, simulation_id)

        try:
            return await self._database.writing(work)
        except IntegrityError as error:
            if not isinstance(error.orig, UniqueViolation):
                raise
            raise Conflict("simulation-running", f"a simulation of pool {pool} is running; wait for its end, or cancel it") from error

    async def simulations(self, pool: PoolKey, span: Span) -> Page[SimulationItem]:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(*_columns(SimulationItem)).where(runs.c.pool_id == row.id, _ASKED)
            order = (runs.c.created_at, runs.c.id)
            return await page(
                connection,
                query,
                order,
                lambda one: read(SimulationItem, one, pool=str(pool)),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
            )

    async def get(self, pool: PoolKey, simulation_id: str) -> Simulation:
        async with self._database.reading() as connection:
            return await _get(connection, pool, simulation_id)

    async def cancel(self, pool: PoolKey, simulation_id: str, draft: AuditDraft, now: datetime) -> Simulation:
        async def work(connection: AsyncConnection) -> Simulation:
            row = await pool_row(connection, pool)
            this = (runs.c.id == simulation_id, runs.c.pool_id == row.id, _AT_WORK, _ASKED)
            ended = await connection.execute(update(runs).where(*this).values(state=SimulationState.CANCELLED, finished_at=now))
            found = await _get(connection, pool, simulation_id)
            if ended.rowcount:
                await audit_log.append(connection, [draft], now)
            return found

        return await self._database.writing(work)

    async def claim(self, runner: str) -> Claimed | None:
        """Claim and return the oldest simulation that no runner has claimed, or whose runner has stopped reporting.
        Simulations of plans come first, simulations for advice last. None if there is no such simulation.

        A simulation is marked as failed after MOST_ATTEMPTS runners have stopped reporting. An automatic simulation is
        also marked as failed when it is too old to be useful.
        """
        silent = (runs.c.state == SimulationState.RUNNING) & (runs.c.heard_at < func.now() - SILENCE)

        async def work(connection: AsyncConnection) -> Claimed | None:
            given_up = update(runs).where(silent, runs.c.attempts >= MOST_ATTEMPTS)
            words = "the process that ran it ended twice; request it again"
            await connection.execute(given_up.values(state=SimulationState.FAILED, error=words, finished_at=func.now()))
            late = update(runs).where(runs.c.state == SimulationState.QUEUED, ~_ASKED, runs.c.created_at < func.now() - LIFE)
            await connection.execute(late.values(state=SimulationState.FAILED, error=TOO_LATE, finished_at=func.now()))
            free = or_(runs.c.state == SimulationState.QUEUED, silent)
            order = (runs.c.sizing.is_not(None), runs.c.plan.is_(None), runs.c.created_at)
            oldest = select(runs.c.id).where(free).order_by(*order).limit(1).with_for_update(skip_locked=True).scalar_subquery()
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
        """Return the requests to simulate, oldest first."""
        async with self._database.reading() as connection:
            if claimed.window is None:
                trace = (await connection.execute(select(runs.c.trace).where(runs.c.id == claimed.id))).scalar_one()
                return Traffic.uploaded(msgspec.json.decode(zlib.decompress(trace), type=list[TraceRequest]))
            most = (
                most_requests(len(claimed.runs))
                if claimed.plan_runs is None
                else MOST
                if claimed.sizing is None
                else claimed.sizing.requests
            )
            order = (requests.c.at.desc(), requests.c.session, requests.c.prompt_tokens, requests.c.blocks)
            wanted = (requests.c.at, requests.c.session, requests.c.prompt_tokens, requests.c.output_tokens, requests.c.blocks)
            query = select(*wanted, requests.c.sample_rate).where(*_within(claimed.pool_id, *claimed.window))
            rows = (await connection.execute(query.order_by(*order).limit(most))).all()
        return Traffic.recorded(rows[::-1])

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        """Record that the runner is alive; return whether it should continue."""
        values = {"heard_at": func.now(), "done": done} | ({} if total is None else {"total": total})
        return await self._end(claimed, runner, values)

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        values = {"results": msgspec.to_builtins(results), "winner": winner, "notes": list(notes), "done": done}
        await self._end(claimed, runner, {"state": SimulationState.DONE, "finished_at": func.now(), "trace": None, **values})

    async def finish_trial(
        self, claimed: Claimed, runner: str, figures: Sequence[RunFigures], traffic: Traffic, notes: Sequence[str]
    ) -> None:
        found = await self._trialled(claimed, figures, traffic)
        await self._end(claimed, runner, {**_done(notes), "trialled": msgspec.to_builtins(found)})

    async def finish_sizing(
        self,
        claimed: Claimed,
        runner: str,
        runs_made: Sequence[JobRun],
        figures: Sequence[RunFigures],
        reach: Reach,
        traffic: Traffic,
        notes: Sequence[str],
    ) -> None:
        assert claimed.sizing is not None
        found = await self._trialled(claimed, figures, traffic)
        seconds = traffic.requests[-1].timestamp / 1e3 if traffic.requests else 0.0
        sized = simulated(claimed.sizing, claimed.id, runs_made, found, reach, len(traffic.requests), seconds)
        values = {"trialled": found, "plan_runs": list(runs_made), "sized": sized}
        await self._end(claimed, runner, {**_done(notes), **{name: msgspec.to_builtins(value) for name, value in values.items()}})

    async def _trialled(self, claimed: Claimed, figures: Sequence[RunFigures], traffic: Traffic) -> Trialled:
        """Return the figures of a plan's runs, together with the recorded figures of the requests that the runs
        measured.
        """
        half = traffic.second_half
        recorded = Recorded()
        if half is not None:
            async with self._database.reading() as connection:
                values = {"pool": claimed.pool_id, "start": half[0], "end": half[1]}
                row = (await connection.execute(_RECORDED, values)).one()
                moved = int((await connection.execute(_MOVED, values)).scalar_one())
            recorded = Recorded(
                attainment=float(row.within / row.judged) if row.judged else None,
                hit_rate=float(row.hits / row.tokens) if row.tokens else None,
                sessions_moved=moved if row.tokens else None,
            )
        seconds = 0.0 if half is None else (half[1] - half[0]).total_seconds()
        return Trialled(figures=list(figures), recorded=recorded, measured_seconds=seconds)

    async def recorded_seconds(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> float:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            newest = select(requests.c.at).where(*_within(row.id, start, end)).order_by(requests.c.at.desc()).limit(most).subquery()
            ends = select(func.min(newest.c.at).label("first"), func.max(newest.c.at).label("last"))
            found = (await connection.execute(ends)).one()
        return 0.0 if found.first is None else float((found.last - found.first).total_seconds())

    async def waiting_plans(self) -> int:
        async with self._database.reading() as connection:
            query = select(func.count()).select_from(runs).where(_AT_WORK, ~_ASKED, runs.c.sizing.is_(None))
            return int((await connection.execute(query)).scalar_one())

    async def expectation(self, plan_id: str) -> Kept | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(runs).where(runs.c.plan == plan_id))).one_or_none()
        if row is None:
            return None
        found = None if row.trialled is None else msgspec.convert(row.trialled, Trialled)
        return read(Kept, row, found=found, runs=msgspec.convert(row.plan_runs or [], list[JobRun]), notes=row.notes or [])

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None:
        await self._end(claimed, runner, {"state": SimulationState.FAILED, "finished_at": func.now(), "trace": None, "error": why})

    async def _end(self, claimed: Claimed, runner: str, values: dict[str, Any]) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            mine = (runs.c.id == claimed.id, runs.c.state == SimulationState.RUNNING, runs.c.runner == runner)
            return bool((await connection.execute(update(runs).where(*mine).values(**values))).rowcount)

        return await self._database.writing(work)


def _done(notes: Sequence[str]) -> dict[str, Any]:
    return {"state": SimulationState.DONE, "finished_at": func.now(), "notes": list(notes), "done": runs.c.total}


def _simulated(spec: Mapping[str, Any] | None) -> SimulatedSpec | None:
    """Return the spec's description of simulated engines; None if the engines are real, or if the pool's newest spec is
    invalid.
    """
    try:
        return parse_spec(spec or {}).simulated
    except InvalidInput:
        return None


def _within(pool_id: int, start: datetime, end: datetime) -> tuple[ColumnElement[bool], ...]:
    return requests.c.pool_id == pool_id, requests.c.at >= start, requests.c.at < end


def _columns(kind: type[SimulationItem]) -> list[Any]:
    return [runs.c[field.name] for field in fields(kind) if field.name in runs.c]


async def _get(connection: AsyncConnection, pool: PoolKey, simulation_id: str) -> Simulation:
    row = await pool_row(connection, pool)
    query: Select[Any] = select(*_columns(Simulation), runs.c.target).where(runs.c.id == simulation_id, runs.c.pool_id == row.id, _ASKED)
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
        plan_runs=None if row.plan_runs is None else msgspec.convert(row.plan_runs, list[JobRun]),
        sizing=None if row.sizing is None else msgspec.convert(row.sizing, Asked),
    )
