"""Adds up what the gateway's keys were used for, by key, minute, router and refusal."""

from collections import Counter

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.batches import Report
from fairlead_api import tables
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import bound, recordset

_use = tables.gateway_key_use
_PLACE = ("key_id", "minute", "router", "refusal")
_COUNTS = ("requests", "prompt_tokens", "output_tokens")

_sent = recordset([_use.c[name] for name in (*_PLACE, *_COUNTS)])
_added = upsert(_use).from_select(
    [*_PLACE, *_COUNTS],
    select(*(_sent.c[name] for name in _PLACE), *(func.sum(_sent.c[name]) for name in _COUNTS))
    .group_by(*(_sent.c[name] for name in _PLACE))
    .order_by(*(_sent.c[name] for name in _PLACE)),
)
_ADD = _added.on_conflict_do_update(index_elements=_PLACE, set_={name: _use.c[name] + _added.excluded[name] for name in _COUNTS})


async def save_key_use(connection: AsyncConnection, report: Report, ignored: Counter[str]) -> None:
    """Adds the report's counts to those stored; rows of unknown keys are only counted.

    The caller stores each report once, so each count is added once.
    """
    if not report.key_use:
        return
    named = {row.key for row in report.key_use}
    known = {found for (found,) in await connection.execute(select(tables.gateway_keys.c.id).where(tables.gateway_keys.c.id.in_(named)))}
    rows = [row for row in report.key_use if row.key in known]
    if len(rows) < len(report.key_use):
        ignored["unknown-key"] += len(report.key_use) - len(rows)
    if rows:
        sent = [
            {
                "key_id": row.key,
                "minute": moment(row.minute),
                "router": report.router,
                "refusal": "" if row.refusal is None else row.refusal.value,
                **{name: getattr(row, name) for name in _COUNTS},
            }
            for row in rows
        ]
        await connection.execute(_ADD, bound(sent))
