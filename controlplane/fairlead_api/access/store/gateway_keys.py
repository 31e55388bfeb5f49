"""Stores gateway keys in Postgres. Only the SHA-256 of each secret is stored."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.access.keys import MOST_KEYS, SHOWN_CHARACTERS, changed_key
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller, digest
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.notices import GatewayKeysChanged
from fairlead_api.infra.paging import page
from fairlead_api.infra.records import read
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.gateway_keys import (
    GatewayKey,
    GatewayKeyChange,
    GatewayKeyRotation,
    GatewayKeyTotals,
    GatewayKeyUsage,
    GatewayKeyUsePoint,
)
from fairlead_client.resources.pages import Page

keys = tables.gateway_keys
used = tables.gateway_key_use

_BUDGET = ("budget_day", "budget_month", "budget_currency", "budget_soft_percent")
_SUMS = tuple(func.sum(used.c[name]).label(name) for name in ("requests", "prompt_tokens", "output_tokens"))
_MIDNIGHT = datetime(2020, 1, 1, tzinfo=UTC)
_LAST_USED = (
    select(used.c.minute)
    .where(used.c.key_id == keys.c.id, used.c.refusal == "")
    .order_by(used.c.minute.desc())
    .limit(1)
    .scalar_subquery()
    .label("last_used_at")
)

_COUNTING = 0x666C_6B00
"""Advisory lock (the letters `flk`) for counting and adding keys, so that simultaneous requests cannot exceed
MOST_KEYS.
"""


class PostgresGatewayKeys:
    """Gateway keys in the database. Every write appends its audit entry and notifies the routers, in the same
    transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, cursor: str | None, limit: int, now: datetime) -> Page[GatewayKey]:
        async with self._database.reading() as connection:
            query, order = select(keys, _LAST_USED), (keys.c.created_at, keys.c.id)
            found = await page(connection, query, order, partial(read, GatewayKey), cursor=cursor, limit=limit)
            day = (used.c.key_id.in_([key.id for key in found.items]), used.c.minute >= now - timedelta(days=1))
            summed = select(used.c.key_id, used.c.refusal, *_SUMS).where(*day).group_by(used.c.key_id, used.c.refusal)
            rows: dict[str, list[Any]] = {}
            for row in await connection.execute(summed):
                rows.setdefault(row.key_id, []).append(row)
        return replace(found, items=[replace(key, last_day=_totals(rows.get(key.id, ()))) for key in found.items])

    async def usage(self, key_id: str, start: datetime, end: datetime, step_seconds: int) -> GatewayKeyUsage:
        """Return the key's usage in the minutes from `start` to before `end`, in steps of `step_seconds`. Raises
        NotFound.
        """
        step = func.date_bin(text("make_interval(secs => :step)").bindparams(step=step_seconds), used.c.minute, _MIDNIGHT).label("at")
        within = (used.c.key_id == key_id, used.c.minute >= start, used.c.minute < end)
        async with self._database.reading() as connection:
            if (await connection.execute(select(keys.c.id).where(keys.c.id == key_id))).one_or_none() is None:
                raise NotFound("gateway key", key_id)
            found = (await connection.execute(select(step, used.c.refusal, *_SUMS).where(*within).group_by(step, used.c.refusal))).all()
        steps: dict[datetime, list[Any]] = {}
        for row in found:
            steps.setdefault(row.at, []).append(row)
        points = [_point(at, rows) for at, rows in sorted(steps.items())]
        return GatewayKeyUsage(key=key_id, start=start, end=end, step_seconds=step_seconds, total=_totals(found), points=points)

    async def add(self, key: GatewayKey, secret_digest: bytes, caller: Caller, now: datetime) -> GatewayKey:
        """Store a key. Raises Conflict if there are already MOST_KEYS keys that are not revoked."""

        async def work(connection: AsyncConnection) -> GatewayKey:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
            living = select(func.count()).select_from(keys).where(keys.c.revoked_at.is_(None))
            if (await connection.execute(living)).scalar_one() >= MOST_KEYS:
                raise Conflict("too-many-gateway-keys", f"there are {MOST_KEYS} gateway keys; revoke keys that are not used")
            scope = {"pools": list(key.pools), "models": list(key.models)}
            limits = {"requests_per_minute": key.requests_per_minute, "tokens_per_minute": key.tokens_per_minute}
            grade: dict[str, Any] = {"priority_class": key.priority_class, "explain": key.explain}
            grade |= {name: getattr(key, name) for name in _BUDGET}
            await connection.execute(
                insert(keys).values(
                    id=key.id,
                    digest=secret_digest,
                    prefix=key.prefix,
                    name=key.name,
                    created_at=key.created_at,
                    created_by=key.created_by,
                    expires_at=key.expires_at,
                    **scope,
                    **limits,
                    **grade,
                )
            )
            await notifying.send(connection, [GatewayKeysChanged()])
            expires_at = key.expires_at.isoformat() if key.expires_at else None
            after = {"name": key.name, "prefix": key.prefix, **scope, **limits, **grade, "expires_at": expires_at}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.GATEWAY_KEY_CREATED, key.id), after=after)], now)
            return key

        return await self._database.writing(work)

    async def change(self, key_id: str, change: GatewayKeyChange, caller: Caller, now: datetime) -> GatewayKey:
        """Changes a key. Raises NotFound; Conflict if the key is revoked."""

        async def work(connection: AsyncConnection) -> GatewayKey:
            before = await _living(connection, key_id)
            after = changed_key(before, change, now)
            changes = _differences(before, after)
            if changes:
                await connection.execute(
                    update(keys).where(keys.c.id == key_id).values(**{name: value for name, (_, value) in changes.items()})
                )
                draft = caller.draft(AuditAction.GATEWAY_KEY_CHANGED, key_id)
                old, new = ({name: _said(pair[side]) for name, pair in changes.items()} for side in (0, 1))
                await self._told(connection, replace(draft, before=old, after=new), now)
            return await _living(connection, key_id)

        return await self._database.writing(work)

    async def rotate(self, key_id: str, secret: str, rotation: GatewayKeyRotation, caller: Caller, now: datetime) -> GatewayKey:
        """Gives a key a new secret. Raises NotFound; Conflict if the key is revoked."""

        async def work(connection: AsyncConnection) -> GatewayKey:
            before = await _living(connection, key_id)
            until = now + timedelta(hours=rotation.hours) if rotation.hours else None
            former = {"former_digest": keys.c.digest if until else None, "former_until": until}
            new = {"digest": digest(secret), "prefix": secret[:SHOWN_CHARACTERS]}
            await connection.execute(update(keys).where(keys.c.id == key_id).values(**former, **new))
            told = {"prefix": new["prefix"], "former_until": _said(until)}
            draft = replace(caller.draft(AuditAction.GATEWAY_KEY_ROTATED, key_id), before={"prefix": before.prefix}, after=told)
            await self._told(connection, draft, now)
            return replace(await _living(connection, key_id), secret=secret)

        return await self._database.writing(work)

    async def _told(self, connection: AsyncConnection, draft: AuditDraft, now: datetime) -> None:
        """Notify the routers that the keys have changed, and append an audit entry."""
        await notifying.send(connection, [GatewayKeysChanged()])
        await audit_log.append(connection, [draft], now)

    async def revoke(self, key_id: str, caller: Caller, now: datetime) -> None:
        """Revokes a key permanently; a key that is already revoked is left unchanged. Raises NotFound."""

        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(select(keys).where(keys.c.id == key_id).with_for_update())).one_or_none()
            if row is None:
                raise NotFound("gateway key", key_id)
            if row.revoked_at is not None:
                return
            await connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=now))
            await notifying.send(connection, [GatewayKeysChanged()])
            before = {"name": row.name, "prefix": row.prefix}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.GATEWAY_KEY_REVOKED, key_id), before=before)], now)

        await self._database.writing(work)


async def _living(connection: AsyncConnection, key_id: str) -> GatewayKey:
    """Lock and return a key that is not revoked. Raises NotFound; Conflict if it is revoked."""
    row = (await connection.execute(select(keys, _LAST_USED).where(keys.c.id == key_id).with_for_update(of=keys))).one_or_none()
    if row is None:
        raise NotFound("gateway key", key_id)
    if row.revoked_at is not None:
        raise Conflict("gateway-key-revoked", f"the gateway key {key_id} is revoked, which is permanent; create another one")
    return read(GatewayKey, row)


def _differences(before: GatewayKey, after: GatewayKey) -> dict[str, tuple[Any, Any]]:
    names = (item.name for item in fields(GatewayKey))
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in names}
    return {name: tuple(list(one) if isinstance(one, tuple) else one for one in pair) for name, pair in pairs.items() if pair[0] != pair[1]}  # type: ignore[misc]  # two of them


def _said(value: Any) -> Any:
    """Return the value in the form in which the audit log stores it."""
    return value.isoformat() if isinstance(value, datetime) else value


def _totals(rows: Iterable[Any]) -> GatewayKeyTotals:
    """Add up the rows of a key's usage, and count refusals by reason."""
    counts = {"requests": 0, "prompt_tokens": 0, "output_tokens": 0}
    refused: Counter[str] = Counter()
    for row in rows:
        if row.refusal:
            refused[row.refusal] += int(row.requests)
        else:
            for name in counts:
                counts[name] += int(row._mapping[name])
    return GatewayKeyTotals(**counts, refused=dict(sorted(refused.items())))


def _point(at: datetime, rows: Iterable[Any]) -> GatewayKeyUsePoint:
    total = _totals(rows)
    return GatewayKeyUsePoint(
        at=at,
        requests=total.requests,
        prompt_tokens=total.prompt_tokens,
        output_tokens=total.output_tokens,
        refused=total.refused,
    )
