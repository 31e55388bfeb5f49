"""The mirror of pools: state from the operator in, observations out. One transaction per call, serialised per pool by its row."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.table_content import MirroredFacts, changed_entries, table_of
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Conflict, NotFound
from fairlead_api.services.pools.diffs import diff
from fairlead_api.services.pools.fingerprints import fingerprint
from fairlead_api.services.pools.mirroring import LIVE_SECONDS, InstanceFacts, RouterView, Shares, is_outdated, observations
from fairlead_api.services.streams.notices import BindingsChanged, Notice, PoolDeleted, TableChanged
from fairlead_api.store import audit, notifying, tables
from fairlead_api.store.database import Database, moment
from fairlead_api.store.pools.drains import move_off, unbind_all
from fairlead_api.store.pools.instances import note_instances

CHANGED_BY = "fairlead.dev/changed-by"
CHANGE_REASON = "fairlead.dev/change-reason"
OWN_MANAGER = "fairlead-api"


class PostgresPools:
    """Implements `services.pool_mirroring.MirrorStore`. `new_id` names the migrations a drain makes."""

    def __init__(self, database: Database, new_id: Callable[[], str]) -> None:
        self._database = database
        self._new_id = new_id

    async def mirror(self, pool: PoolKey, state: PoolState, facts: MirroredFacts | None, shares: Shares, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = await _locked(connection, pool, state, now)
            drafts: list[AuditDraft] = []
            notices: list[Notice] = []
            await _note_revision(connection, row, pool, state, drafts, now)
            in_force = facts or _stored_facts(row)
            await _note_slo(connection, row, facts, now)
            await note_instances(connection, row.id, state.instances, now)
            version = row.table_version
            if in_force is not None:
                version = await _note_table(connection, row, pool, state, in_force, shares, now)
                if version != row.table_version:
                    notices.append(TableChanged(pool, version))
                if in_force.migrate_sessions:
                    moved = await move_off(connection, row.id, pool, _draining(state), _accepting(state), self._new_id, now)
                    if moved:
                        notices.append(BindingsChanged(moved))
            await _save_pool(connection, row.id, state, in_force, version, now)
            await notifying.send(connection, notices)
            await audit.append(connection, drafts, now)

        await self._database.writing(work)

    async def observe(self, pool: PoolKey, now: datetime) -> PoolObservations:
        async with self._database.reading() as connection:
            pools = tables.pools
            row = (
                await connection.execute(
                    select(pools.c.id, pools.c.table_version).where(
                        pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None)
                    )
                )
            ).one_or_none()
            if row is None:
                raise NotFound("pool", str(pool))
            routers = await live_routers(connection, row.id)
            found = await connection.execute(
                text(
                    "SELECT i.id, i.table_version, count(s.session) AS bound, coalesce(sum(s.context_tokens), 0) AS cached FROM instances i "
                    "LEFT JOIN sessions s ON s.pool_id = i.pool_id AND s.instance = i.id "
                    "WHERE i.pool_id = :pool AND i.gone_at IS NULL GROUP BY i.id, i.table_version ORDER BY i.id"
                ),
                {"pool": row.id},
            )
            instances = [
                InstanceFacts(id=name, table_version=version, bound_sessions=bound, cache_tokens=int(cached))
                for name, version, bound, cached in found
            ]
            traffic = (
                await connection.execute(
                    text(
                        "SELECT sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(requests_total) AS requests, "
                        "extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds "
                        "FROM load_rollups_10s WHERE pool_id = :pool AND bucket > :now - interval '5 minutes'"
                    ),
                    {"pool": row.id, "now": now},
                )
            ).one()
        return observations(
            row.table_version,
            routers,
            instances,
            attainment=float(traffic.within / traffic.total) if traffic.total else None,
            requests_per_second=float(traffic.requests) / float(traffic.seconds) if traffic.requests else 0.0,
        )

    async def add_events(self, pool: PoolKey, events: Sequence[PoolEvent], actor: str, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            pool_id = (
                await connection.execute(
                    select(tables.pools.c.id).where(tables.pools.c.namespace == pool.namespace, tables.pools.c.name == pool.name)
                )
            ).scalar_one_or_none()
            if pool_id is None:
                raise NotFound("pool", str(pool))
            drafts = []
            for event in events:
                values = {"before": event.before, "after": event.after, "instance": event.instance, "at": moment(event.at)}
                row = upsert(tables.pool_events).values(pool_id=pool_id, reason=event.reason, message=event.message, **values)
                stored = await connection.execute(row.on_conflict_do_nothing().returning(tables.pool_events.c.id))
                if stored.scalar_one_or_none() is not None:
                    drafts.append(_event_draft(pool, event, actor))
            await audit.append(connection, drafts, now)

        await self._database.writing(work)

    async def delete(self, pool: PoolKey, actor: str, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            pools = tables.pools
            row = (
                await connection.execute(
                    select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name).with_for_update()
                )
            ).one_or_none()
            if row is None or row.deleted_at is not None:
                return
            await note_instances(connection, row.id, (), now, why="the pool was deleted")
            await unbind_all(connection, row.id, now)
            slo = tables.slo_configs
            await connection.execute(update(slo).where(slo.c.pool_id == row.id, slo.c.active_until.is_(None)).values(active_until=now))
            await connection.execute(update(pools).where(pools.c.id == row.id).values(deleted_at=now, facts=None))
            await notifying.send(connection, [PoolDeleted(pool)])
            draft = AuditDraft(
                actor=actor, role="system-operator", source="operator", action="pool.deleted", object=str(pool), before={"uid": row.uid}
            )
            await audit.append(connection, [draft], now)

        await self._database.writing(work)


async def live_routers(connection: AsyncConnection, pool_id: int) -> list[RouterView]:
    """Routers that reported in the last LIVE_SECONDS and did not say goodbye, by the database's clock."""
    routers = tables.routers
    rows = await connection.execute(
        select(routers.c.acknowledged, routers.c.in_flight).where(
            routers.c.gone_at.is_(None), routers.c.last_seen_at > func.now() - text(f"interval '{LIVE_SECONDS} seconds'")
        )
    )
    views = []
    for acknowledged, in_flight in rows:
        work = {instance: running + waiting for of_pool, instance, running, waiting in in_flight if of_pool == pool_id}
        views.append(RouterView(acknowledged=acknowledged.get(str(pool_id)), in_flight=work))
    return views


async def _locked(connection: AsyncConnection, pool: PoolKey, state: PoolState, now: datetime) -> Any:
    """The pool's row, locked; made first if new. Raises Conflict for a state that is older than the row."""
    pools = tables.pools
    fresh = upsert(pools).values(
        namespace=pool.namespace,
        name=pool.name,
        uid=state.uid,
        generation=0,
        resource_version="0",
        model="",
        spec={},
        labels={},
        annotations={},
        changed_by="",
        conditions=[],
        created_at=now,
        observed_at=now,
    )
    await connection.execute(fresh.on_conflict_do_nothing())
    row = (
        await connection.execute(select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name).with_for_update())
    ).one()
    outdated = is_outdated((row.uid, row.generation, row.resource_version), state)
    if outdated:
        raise Conflict("state-outdated", f"{pool}: {outdated}; send the newest state")
    if row.uid == state.uid and row.deleted_at is not None:
        raise Conflict("pool-deleted", f"{pool}: the object with uid {state.uid} was deleted")
    if row.uid != state.uid:
        revisions = tables.pool_revisions
        earlier = select(revisions.c.number).where(revisions.c.pool_id == row.id, revisions.c.uid == state.uid).limit(1)
        if (await connection.execute(earlier)).scalar_one_or_none() is not None:
            raise Conflict("pool-replaced", f"{pool}: the object with uid {state.uid} was replaced by {row.uid}")
    return row


def _stored_facts(row: Any) -> MirroredFacts | None:
    return None if row.facts is None else msgspec.convert(row.facts, MirroredFacts)


async def _note_revision(
    connection: AsyncConnection, row: Any, pool: PoolKey, state: PoolState, drafts: list[AuditDraft], now: datetime
) -> None:
    recreated = row.uid != state.uid or row.deleted_at is not None
    if row.revision and not recreated and row.spec == state.spec:
        return
    actor = state.annotations.get(CHANGED_BY, state.changed_by) if state.changed_by == OWN_MANAGER else state.changed_by
    reason = state.annotations.get(CHANGE_REASON) if state.changed_by == OWN_MANAGER else None
    changes = diff({} if recreated else row.spec, state.spec)
    await connection.execute(
        insert(tables.pool_revisions).values(
            pool_id=row.id,
            number=row.revision + 1,
            uid=state.uid,
            generation=state.generation,
            at=now,
            actor=actor,
            reason=reason,
            spec=state.spec,
            diff=changes,
        )
    )
    await connection.execute(update(tables.pools).where(tables.pools.c.id == row.id).values(revision=row.revision + 1))
    created = recreated or not row.revision
    drafts.append(
        AuditDraft(
            actor=actor,
            role="cluster",
            source=state.changed_by,
            action="pool.created" if created else "pool.spec-changed",
            object=str(pool),
            reason=reason,
            before=None if created else {change["path"]: change["before"] for change in changes},
            after={"uid": state.uid, "spec": state.spec} if created else {change["path"]: change["after"] for change in changes},
            result="ok" if state.problem is None else "refused",
        )
    )


async def _note_slo(connection: AsyncConnection, row: Any, facts: MirroredFacts | None, now: datetime) -> None:
    if facts is None:
        return
    slo, wanted = tables.slo_configs, facts.table.slo
    active = (await connection.execute(select(slo).where(slo.c.pool_id == row.id, slo.c.active_until.is_(None)))).one_or_none()
    if active and (active.ttft_seconds, active.tpot_seconds, active.percentile) == (
        wanted.ttft_seconds,
        wanted.tpot_seconds,
        wanted.percentile,
    ):
        return
    await connection.execute(update(slo).where(slo.c.pool_id == row.id, slo.c.active_until.is_(None)).values(active_until=now))
    version = row.slo_version + 1
    await connection.execute(
        insert(slo).values(
            pool_id=row.id,
            version=version,
            ttft_seconds=wanted.ttft_seconds,
            tpot_seconds=wanted.tpot_seconds,
            percentile=wanted.percentile,
            active_from=now,
        )
    )
    await connection.execute(update(tables.pools).where(tables.pools.c.id == row.id).values(slo_version=version))


async def _note_table(
    connection: AsyncConnection, row: Any, pool: PoolKey, state: PoolState, facts: MirroredFacts, shares: Shares, now: datetime
) -> int:
    """Version of the pool's table now; a new one if its content changed."""
    routing, instances = tables.routing_tables, tables.instances
    table = table_of(pool, state.uid, state.generation, facts.table, state.instances)
    content_hash = fingerprint(table)
    last = (
        await connection.execute(
            select(routing.c.content, routing.c.content_hash).where(routing.c.pool_id == row.id, routing.c.version == row.table_version)
        )
    ).one_or_none()
    if last and bytes(last.content_hash) == content_hash and row.deleted_at is None:
        return int(row.table_version)
    version = int(row.table_version) + 1
    await connection.execute(
        insert(routing).values(
            pool_id=row.id,
            version=version,
            uid=state.uid,
            generation=state.generation,
            content=msgspec.to_builtins(replace(table, version=version)),
            content_hash=content_hash,
            created_at=now,
        )
    )
    before = msgspec.convert(last.content, RoutingTable) if last else None
    changed = changed_entries(before, table)
    if changed:
        await connection.execute(
            update(instances).where(instances.c.pool_id == row.id, instances.c.id.in_(changed)).values(table_version=version)
        )
    owned = shares(table.instances)
    reported = {report.id for report in state.instances}
    anchors = {entry.id: entry.anchors for entry in table.instances}
    if reported:
        await connection.execute(
            text(
                "UPDATE instances SET anchors = n.anchors, key_share = n.share FROM unnest(CAST(:ids AS text[]), CAST(:anchors AS bigint[]), "
                "CAST(:shares AS float8[])) AS n(id, anchors, share) WHERE instances.pool_id = :pool AND instances.id = n.id"
            ),
            {
                "pool": row.id,
                "ids": sorted(reported),
                "anchors": [anchors.get(name, 0) for name in sorted(reported)],
                "shares": [owned.get(name, 0.0) for name in sorted(reported)],
            },
        )
    return version


def _draining(state: PoolState) -> list[str]:
    return [instance.id for instance in state.instances if instance.state is InstanceState.DRAINING]


def _accepting(state: PoolState) -> list[str]:
    return [instance.id for instance in state.instances if instance.state in ACCEPTING and instance.address is not None]


async def _save_pool(
    connection: AsyncConnection, pool_id: int, state: PoolState, facts: MirroredFacts | None, version: int, now: datetime
) -> None:
    pools = tables.pools
    model = state.spec.get("model")
    values: dict[str, Any] = {
        "uid": state.uid,
        "generation": state.generation,
        "resource_version": state.resource_version,
        "model": model if isinstance(model, str) else "",
        "spec": state.spec,
        "facts": None if facts is None else msgspec.to_builtins(facts),
        "labels": state.labels,
        "annotations": state.annotations,
        "changed_by": state.changed_by,
        "problem": state.problem,
        "conditions": list(state.conditions),
        "table_version": version,
        "observed_at": now,
        "deleted_at": None,
    }
    was = (await connection.execute(select(pools.c.uid, pools.c.revision, pools.c.deleted_at).where(pools.c.id == pool_id))).one()
    if was.uid != state.uid or was.deleted_at is not None:
        values["created_at"] = now
    await connection.execute(update(pools).where(pools.c.id == pool_id).values(values))


def _event_draft(pool: PoolKey, event: PoolEvent, actor: str) -> AuditDraft:
    return AuditDraft(
        actor=actor,
        role="system-operator",
        source="operator",
        action=f"operator.{event.reason}",
        object=f"{pool}/{event.instance}" if event.instance else str(pool),
        reason=event.message,
        before=event.before,
        after=event.after,
    )
