"""Stores routing tables: a new version exactly when the content changes, with the instances that changed; or when a
router has a version that this database never gave.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.table_content import MirroredFacts, changed_entries, table_of
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api import tables
from fairlead_api.pools.mirroring import Shares, fingerprint
from fairlead_api.pools.store.capabilities import NEWEST_ACKNOWLEDGED

_ROUTING = tables.routing_tables.c
_LAST_IF_OTHER = select(
    case((_ROUTING.content_hash == bindparam("hash", type_=_ROUTING.content_hash.type), None), else_=_ROUTING.content).label("content")
).where(_ROUTING.pool_id == bindparam("pool"), _ROUTING.version == bindparam("present"))
"""The content of the last table, null when it has this hash."""


async def note_table(
    connection: AsyncConnection,
    row: Any,
    pool: PoolKey,
    state: PoolState,
    facts: MirroredFacts,
    slo_version: int,
    shares: Shares,
    now: datetime,
) -> int:
    """The present version of the pool's table; a new one if its content changed.

    A live router that has acknowledged a newer version than the database has shows that the database was restored from
    a backup, or lost what it had committed. Routers take no version below their own, so the table goes out again above
    theirs, and every instance waits for its acknowledgement.
    """
    ahead = int((await connection.execute(NEWEST_ACKNOWLEDGED, {"pool": str(row.id)})).scalar_one() or 0)
    lost = ahead > row.table_version
    routing, instances = tables.routing_tables, tables.instances
    table = table_of(
        pool, state.uid, state.generation, facts.table, state.instances, state.outlook, state.opens_at, slo_version, state.objectives
    )
    content_hash = fingerprint(table)
    last = None
    if row.table_version:
        present = {"pool": row.id, "present": row.table_version, "hash": None if row.deleted_at else content_hash}
        last = (await connection.execute(_LAST_IF_OTHER, present)).one_or_none()
    if last is not None and last.content is None and not lost:
        return int(row.table_version)
    version = max(int(row.table_version), ahead) + 1
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
    before = msgspec.convert(last.content, RoutingTable) if last and not lost else None
    changed = {report.id for report in state.instances} if lost else changed_entries(before, table)
    if changed:
        await connection.execute(
            update(instances).where(instances.c.pool_id == row.id, instances.c.id.in_(changed)).values(table_version=version)
        )
    owned = shares(table.instances)
    reported = {report.id for report in state.instances}
    anchors = {entry.id: anchor_count(entry) for entry in table.instances}
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
