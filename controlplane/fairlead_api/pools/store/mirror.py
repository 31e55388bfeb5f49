"""Stores pools' states and events that the operator reports, and returns observations to the operator.

Every change of an instance's state is stored as a transition, in the transaction that stores the pool's state.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import ENGINE_RESTARTED, REACHABLE, InstanceState, Role
from fairlead.pool_states import EndedInstance, InstanceReport, PoolEvent, PoolObservations, PoolState
from fairlead.pools import parse_spec
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.canaries.store import note_step, read_verdict
from fairlead_api.costs.store.recording import note_lives, note_prices
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database, moment
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.lost_commits import LostCommits
from fairlead_api.infra.notices import Notice, PoolDeleted, TableChanged
from fairlead_api.infra.pool_rows import new_pool
from fairlead_api.infra.records import Writing
from fairlead_api.pools.fixed_engines import engines_file
from fairlead_api.pools.mirroring import Shares, facts_of, is_outdated
from fairlead_api.pools.store.capabilities import measured_to_remember
from fairlead_api.pools.store.observations import read_held_pools, read_observations, read_stalled
from fairlead_api.pools.store.summaries import declared_by, desired_of
from fairlead_api.pools.store.versions import note_revision, note_slo, note_table
from fairlead_api.scaling.store import Measuring
from fairlead_api.schedules.store import close_runs, note_runs
from fairlead_api.sessions.store.rows import unbind
from fairlead_api.tables import wanted_replicas
from fairlead_api.webhooks.events import Event, of_conditions, of_lost, of_operator, of_skipped, of_stalled
from fairlead_api.webhooks.store import outbox
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import OPERATOR_EVENT, AuditAction


async def store_events(
    connection: AsyncConnection, pool: PoolKey, events: Sequence[PoolEvent], actor: str, now: datetime
) -> list[AuditDraft]:
    """Store the operator's events that are not stored yet, and the notices that they cause for webhooks. Return the
    drafts of the events' audit entries. Raises NotFound.
    """
    pool_id = (
        await connection.execute(
            select(tables.pools.c.id).where(tables.pools.c.namespace == pool.namespace, tables.pools.c.name == pool.name)
        )
    ).scalar_one_or_none()
    if pool_id is None:
        raise NotFound("pool", str(pool))
    drafts, happened = [], list[Event]()
    for event in events:
        values = {"before": event.before, "after": event.after, "instance": event.instance, "at": moment(event.at)}
        row = upsert(tables.pool_events).values(pool_id=pool_id, reason=event.reason, message=event.message, **values)
        stored = await connection.execute(row.on_conflict_do_nothing().returning(tables.pool_events.c.id))
        if stored.scalar_one_or_none() is not None:
            drafts.append(_event_draft(pool, event, actor))
            happened += of_operator(pool, event)
    await outbox.write(connection, happened, now)
    return drafts


def _event_draft(pool: PoolKey, event: PoolEvent, actor: str) -> AuditDraft:
    return AuditDraft(
        actor=actor,
        role=AccessRole.SYSTEM_OPERATOR,
        source="operator",
        action=f"{OPERATOR_EVENT}{event.reason}",
        object=f"{pool}/{event.instance}" if event.instance else str(pool),
        reason=event.message,
        before=event.before,
        after=event.after,
    )


async def note_wanted(connection: AsyncConnection, row: Any, state: PoolState, now: datetime) -> None:
    """Store changes of the desired numbers of instances from `row` of the table pools to `state`; for a new pool, store
    all numbers.
    """
    after = state.desired or declared_by(state.spec)
    new = not row.revision or row.uid != state.uid or row.deleted_at is not None
    before = {} if new else desired_of(row)
    changes = [
        {"pool_id": row.id, "role": role, "at": now, "before": before.get(role), "replicas": after.get(role, 0)}
        for role in sorted({*before, *after})
        if before.get(role) != after.get(role)
    ]
    if changes:
        await connection.execute(upsert(wanted_replicas).on_conflict_do_nothing(), changes)


_DECISIONS = Writing(tables.scaling_decisions, ScalingDecisionRecord, "pool_id")

_POOLS = tables.pools
_LOCK_POOL = select(_POOLS).where(_POOLS.c.namespace == bindparam("namespace"), _POOLS.c.name == bindparam("name")).with_for_update()


class PostgresPools:
    """Stores pools as the operator reports them; each call is one transaction. `shares` computes the key shares on a
    hash ring.
    """

    def __init__(self, database: Database, shares: Shares, lost_commits: LostCommits) -> None:
        self._database = database
        self._lost_commits = lost_commits
        self._shares = shares
        self._measuring = Measuring()

    async def mirror(self, pool: PoolKey, state: PoolState, now: datetime) -> PoolObservations:
        """Store the pool's state, unbind sessions of instances that are gone, and make a new version of the routing
        table if the table's content changed.

        Returns the present observations of routers and the database. Raises InvalidInput if the spec is invalid and the
        operator did not report it as invalid, Conflict if the state is older than the stored one.
        """
        facts = facts_of(state)
        spec = parse_spec(state.spec) if state.problem is None else None
        schedules = spec.scaling.schedules if spec is not None else None

        async def work(connection: AsyncConnection) -> tuple[int, int, MirroredFacts | None, list[EndedInstance]]:
            row = await _locked(connection, pool, state, now)
            known = row.uid == state.uid
            happened = [*of_conditions(pool, row.conditions if known else (), state.conditions)]
            drafts: list[AuditDraft] = []
            notices: list[Notice] = []
            revision = await note_revision(connection, row, pool, state, drafts, now)
            if spec is not None and (revision != row.revision or not known):
                await note_prices(connection, row.id, spec, now)
            told = facts or _stored_facts(row)
            in_force = told.under(state.schedules) if told is not None else None
            slo_version = await note_slo(connection, row, in_force, revision, now)
            happened += [of_skipped(pool, one) for one in await note_runs(connection, row, state, schedules)]
            gone, lost = await note_instances(connection, row.id, state.instances, now)
            happened += [of_lost(pool, one.id, one.reason) for one in lost]
            stalled = await read_stalled(connection, row.id, {one.id for one in state.instances})
            happened += of_stalled(pool, (known and row.stalled) or (), stalled)
            await unbind(connection, row.id, now, [one.id for one in gone])
            if spec is not None and (state.canary is not None or spec.rollout.canary is not None):
                await note_step(connection, row.id, state, spec.rollout.canary, now)
            version = row.table_version
            if in_force is not None:
                version = await note_table(connection, row, pool, state, in_force, slo_version, self._shares, drafts, now)
                if version != row.table_version:
                    notices.append(TableChanged(pool, version))
            numbers = {"revision": revision, "slo_version": slo_version, "table_version": version}
            await note_wanted(connection, row, state, now)
            measured = await measured_to_remember(connection, row, state.spec, now)
            await _save_pool(connection, row, state, in_force, numbers, {"measured": measured, "stalled": sorted(stalled) or None}, now)
            await _DECISIONS.add(connection, state.scaling_decisions, pool_id=row.id)
            await notifying.send(connection, notices)
            await outbox.write(connection, happened, now)
            await audit_log.append(connection, drafts, now)
            return int(row.id), version, in_force, gone

        pool_id, version, in_force, gone = await self._database.writing(work)
        async with self._database.reading() as connection:  # no more while reports wait for the pool's row
            found = await read_observations(connection, pool_id, version, in_force, self._measuring, now)
            canary = await read_verdict(connection, pool_id, state.canary.step) if state.canary is not None else None
        return replace(found, canary=canary, ended=tuple(gone), record_lacks=self._lost_commits.words)

    async def held_pools(self) -> tuple[PoolKey, ...]:
        """Return the pools for which live routers hold requests."""
        async with self._database.reading() as connection:
            return await read_held_pools(connection)

    async def unheard_pools(self, before: datetime) -> tuple[PoolKey, ...]:
        """Return the pools whose state was last reported before `before`. Deleted pools and pools of `fairlead serve`
        are left out.
        """
        columns = (_POOLS.c.namespace, _POOLS.c.name, _POOLS.c.annotations)
        query = select(*columns).where(_POOLS.c.deleted_at.is_(None), _POOLS.c.observed_at <= before).order_by(*columns[:2])
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return tuple(PoolKey(namespace=row.namespace, name=row.name) for row in rows if engines_file(row.annotations) is None)

    async def add_events(self, pool: PoolKey, events: Sequence[PoolEvent], actor: str, now: datetime) -> None:
        """Store the events that are not stored yet, each with its audit entry. Raises NotFound for a pool whose state
        was never reported.
        """

        async def work(connection: AsyncConnection) -> None:
            drafts = await store_events(connection, pool, events, actor, now)
            await audit_log.append(connection, drafts, now)

        await self._database.writing(work)

    async def delete(self, pool: PoolKey, actor: str, now: datetime) -> None:
        """Record that the pool was deleted: its instances become Gone, its sessions are unbound, and routers are
        notified. A repeated call changes nothing.
        """

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
            await unbind(connection, row.id, now)
            slo = tables.slo_configs
            await connection.execute(update(slo).where(slo.c.pool_id == row.id, slo.c.active_until.is_(None)).values(active_until=now))
            await close_runs(connection, row.id, now)
            await connection.execute(update(pools).where(pools.c.id == row.id).values(deleted_at=now, facts=None))
            self._measuring.forget(row.id)
            await notifying.send(connection, [PoolDeleted(pool)])
            draft = AuditDraft(
                actor=actor,
                role=AccessRole.SYSTEM_OPERATOR,
                source="operator",
                action=AuditAction.POOL_DELETED,
                object=str(pool),
                before={"uid": row.uid},
            )
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)


async def _locked(connection: AsyncConnection, pool: PoolKey, state: PoolState, now: datetime) -> Any:
    """Lock and return the pool's row, which is created if the pool is new. Raises Conflict if the state is older than
    the state in the row.
    """
    key = {"namespace": pool.namespace, "name": pool.name}
    row = (await connection.execute(_LOCK_POOL, key)).one_or_none()
    if row is None:
        first = new_pool(**key, uid=state.uid, created_at=now, observed_at=now).returning(_POOLS)
        made = (await connection.execute(first)).one_or_none()
        row = made or (await connection.execute(_LOCK_POOL, key)).one()  # another call made it meanwhile
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


async def _save_pool(
    connection: AsyncConnection,
    row: Any,
    state: PoolState,
    facts: MirroredFacts | None,
    numbers: dict[str, int],
    of_engines: dict[str, Any],
    now: datetime,
) -> None:
    """Store the reported state in the pool's row. `numbers` has the versions of the pool's spec, objectives and routing
    table after this report; `of_engines` has the routers' measurements of the pool's engines.
    """
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
        "desired": state.desired or None,
        "observed_at": now,
        "deleted_at": None,
        **of_engines,
        **numbers,
    }
    if state.problem is None:
        values["spec_in_force"] = state.spec
    if row.uid != state.uid or row.deleted_at is not None:
        values = {"spec_in_force": None, **values, "created_at": now}
    changed = {name: value for name, value in values.items() if value != row._mapping[name]}
    await connection.execute(update(pools).where(pools.c.id == row.id).values(changed))


def _changes_of_state(before: Any, report: InstanceReport) -> list[tuple[str | None, str, str]]:
    """Return the changes of an instance's state since its stored row `before` (None = a new instance), each with the
    state before, the state after, and the reason.

    If the report shows that the engine was restarted since the last report, there are two changes: to Lost, and back.
    """
    lost, now = InstanceState.LOST.value, report.state.value
    if before is not None and report.restarts > before.restarts and before.state in REACHABLE and report.state in REACHABLE:
        return [(before.state, lost, ENGINE_RESTARTED), (lost, now, ENGINE_RESTARTED)]
    if before is None or before.state != now:
        return [(before.state if before else None, now, report.reason)]
    return []


async def note_instances(
    connection: AsyncConnection,
    pool_id: int,
    reports: Sequence[InstanceReport],
    now: datetime,
    why: str = "no longer reported by the operator",
) -> tuple[list[EndedInstance], list[InstanceReport]]:
    """Store instances as reported, with a transition for every change of state. Stored instances that are not reported
    become Gone.

    Returns two lists: the instances that became Gone, each with its last state before that; and the instances that
    became Lost, even if they have come back since.
    """
    instances = tables.instances
    rows = await connection.execute(select(instances).where(instances.c.pool_id == pool_id, instances.c.gone_at.is_(None)))
    stored = {row.id: row for row in rows}
    transitions: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    ended: list[EndedInstance] = []
    lost: list[InstanceReport] = []
    for report in reports:
        before = stored.pop(report.id, None)
        gone = report.state is InstanceState.GONE
        values = {
            "pool_id": pool_id,
            "id": report.id,
            "pod_uid": report.pod_uid,
            "address": report.address,
            "role": report.role.value,
            "state": report.state.value,
            "reason": report.reason,
            "node": report.node,
            "weight": report.weight,
            "restarts": report.restarts,
            "created_at": moment(report.created_at),
        }
        if gone and before is None:
            continue
        if gone and before is not None:
            ended.append(EndedInstance(id=report.id, role=report.role, state=InstanceState(before.state)))
        changes = _changes_of_state(before, report)
        lost += [replace(report, state=InstanceState.LOST, reason=why) for _, after, why in changes if after == InstanceState.LOST.value]
        transitions += [
            {"pool_id": pool_id, "instance": report.id, "at": now, "before": was, "after": after, "reason": why}
            for was, after, why in changes
        ]
        if changes or any(getattr(before, name) != value for name, value in values.items()):
            since = now if changes or before is None else before.state_since
            changed.append({**values, "state_since": since, "gone_at": now if gone else None})
    ended.extend(EndedInstance(id=one.id, role=Role(one.role), state=InstanceState(one.state)) for one in stored.values())
    gone_now = InstanceState.GONE.value
    transitions.extend(
        {"pool_id": pool_id, "instance": missing.id, "at": now, "before": missing.state, "after": gone_now, "reason": why}
        for missing in stored.values()
    )
    if stored:
        await connection.execute(
            update(instances)
            .where(instances.c.pool_id == pool_id, instances.c.id.in_(list(stored)))
            .values(state=InstanceState.GONE.value, reason=why, state_since=now, gone_at=now, anchors=0, key_share=0)
        )
    if changed:
        row = upsert(instances)
        replaced = {name: row.excluded[name] for name in changed[0] if name not in {"pool_id", "id"}}
        await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "id"], set_=replaced), changed)
    if changed or stored:
        await note_lives(connection, pool_id, reports, now)
    if transitions:
        await connection.execute(insert(tables.instance_transitions), transitions)
    return ended, lost
