"""Stores webhooks and notices: for people, with an audit entry in the transaction of each write; and for delivery,
which claims notices.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.infra import audit_log
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.paging import page
from fairlead_api.infra.records import read
from fairlead_api.webhooks.deliveries import AT_ONCE, LEASE, MOST_ATTEMPTS, OF_ONE_WEBHOOK, UNKNOWN_END, Claimed, Outcome
from fairlead_api.webhooks.messages import Message
from fairlead_api.webhooks.receivers import receiver_of
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.pages import Page
from fairlead_client.resources.webhooks import NoticeAttempt, NoticeKind, NoticeState, Webhook, WebhookNotice

webhooks, notices = tables.webhooks, tables.notices

MOST_WEBHOOKS = 100
"""Maximum number of webhooks. The number is bounded because each event is compared with all of them."""
_COUNTING = 0x7768_6B00
"""Advisory lock (the letters `whk`) for counting and adding webhooks, so that simultaneous requests cannot exceed
MOST_WEBHOOKS.
"""

_NEWEST = text("""
SELECT w.id, (SELECT count(*) FROM notices n WHERE n.webhook = w.id AND n.state = 'waiting') AS waiting, last.attempts, done.at AS delivered_at
FROM webhooks w
LEFT JOIN LATERAL (SELECT attempts FROM notices n WHERE n.webhook = w.id ORDER BY n.at DESC, n.id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT n.attempts -> -1 ->> 'at' AS at FROM notices n WHERE n.webhook = w.id AND n.state = 'delivered'
ORDER BY n.at DESC, n.id DESC LIMIT 1) done ON true
WHERE w.id = ANY(:ids)
""")


class PostgresWebhooks:
    """The database's webhooks and their notices. Methods about one webhook or notice raise NotFound."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def webhooks(self, cursor: str | None, limit: int) -> Page[Webhook]:
        async with self._database.reading() as connection:
            found = await page(connection, select(webhooks), (webhooks.c.created_at, webhooks.c.id), _webhook, cursor=cursor, limit=limit)
            rows = (await connection.execute(_NEWEST, {"ids": [one.id for one in found.items]})).all()
        lately = {row.id: row for row in rows}
        return replace(found, items=[_with_newest(one, lately[one.id]) for one in found.items if one.id in lately])

    async def notices(self, webhook: str | None, cursor: str | None, limit: int) -> Page[WebhookNotice]:
        query = select(notices) if webhook is None else select(notices).where(notices.c.webhook == webhook)
        async with self._database.reading() as connection:
            return await page(connection, query, (notices.c.at, notices.c.id), _notice, cursor=cursor, limit=limit)

    async def notice(self, notice_id: str) -> WebhookNotice:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(notices).where(notices.c.id == notice_id))).one_or_none()
        if row is None:
            raise NotFound("notice", notice_id)
        return _notice(row)

    async def add(self, webhook: Webhook, url: str, caller: Caller, now: datetime) -> Webhook:
        """Store a webhook. Raises Conflict if there are already MOST_WEBHOOKS."""

        async def work(connection: AsyncConnection) -> Webhook:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
            if (await connection.execute(select(func.count()).select_from(webhooks))).scalar_one() >= MOST_WEBHOOKS:
                raise Conflict("too-many-webhooks", f"there are {MOST_WEBHOOKS} webhooks; delete one that is not used")
            about = _about(webhook)
            made = {"created_at": webhook.created_at, "created_by": webhook.created_by}
            stored = {name: value for name, value in about.items() if name != "origin"}
            await connection.execute(insert(webhooks).values(id=webhook.id, url=url, secret=webhook.secret, **stored, **made))
            entry = replace(caller.draft(AuditAction.WEBHOOK_CREATED, webhook.id), after=about)
            await audit_log.append(connection, [entry], now)
            return webhook

        return await self._database.writing(work)

    async def delete(self, webhook_id: str, caller: Caller, now: datetime) -> None:
        """Delete a webhook with its notices. Notices that have not been delivered are not sent any more."""

        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id).returning(webhooks))).one_or_none()
            if row is None:
                raise NotFound("webhook", webhook_id)
            entry = replace(caller.draft(AuditAction.WEBHOOK_DELETED, webhook_id), before=_about(_webhook(row)))
            await audit_log.append(connection, [entry], now)

        await self._database.writing(work)

    async def test(self, webhook_id: str, notice_id: str, caller: Caller, now: datetime) -> WebhookNotice:
        """Add a test notice for a webhook, to be delivered at once."""

        async def work(connection: AsyncConnection) -> WebhookNotice:
            row = (
                await connection.execute(select(webhooks).where(webhooks.c.id == webhook_id).with_for_update(key_share=True))
            ).one_or_none()
            if row is None:
                raise NotFound("webhook", webhook_id)
            values = {
                "id": notice_id,
                "webhook": webhook_id,
                "kind": NoticeKind.TEST,
                "pool": "",
                "subject": webhook_id,
                "words": f"{caller.identity.subject} tests the webhook {row.name} of Fairlead",
                "facts": {},
                "at": now,
                "state": NoticeState.WAITING,
                "due_at": now,
                "attempts": [],
            }
            made = (await connection.execute(insert(notices).values(values).returning(notices))).one()
            await audit_log.append(connection, [caller.draft(AuditAction.WEBHOOK_TESTED, webhook_id)], now)
            return _notice(made)

        return await self._database.writing(work)


def _about(webhook: Webhook) -> dict[str, Any]:
    """Return the fields of a webhook that its audit entries record; no such field is secret."""
    found = msgspec.to_builtins(webhook)
    return {name: found[name] for name in ("name", "origin", "form", "kinds", "pools")}


def _webhook(row: Any) -> Webhook:
    return read(Webhook, row, origin=receiver_of(row.url).origin, secret=None)


def _with_newest(webhook: Webhook, row: Any) -> Webhook:
    attempts = msgspec.convert(row.attempts or [], tuple[NoticeAttempt, ...])
    delivered = msgspec.convert(row.delivered_at, datetime | None)
    return replace(webhook, waiting=row.waiting, delivered_at=delivered, last_problem=attempts[-1].problem if attempts else None)


_notice = partial(read, WebhookNotice)


# A notice whose last attempt has no recorded end, and which has no attempt left, is given up here.
_GIVE_UP = text("""
UPDATE notices SET state = 'failed', due_at = NULL
WHERE state = 'waiting' AND due_at <= :now AND jsonb_array_length(attempts) >= :most
""")
_CLAIM = text("""
WITH due AS (
SELECT n.id FROM webhooks w CROSS JOIN LATERAL (
SELECT o.id FROM notices o WHERE o.webhook = w.id AND o.state = 'waiting' AND o.due_at <= :now
ORDER BY o.due_at, o.id LIMIT :each FOR UPDATE SKIP LOCKED) n LIMIT :most)
UPDATE notices n SET due_at = :until, attempts = n.attempts || CAST(:begun AS jsonb)
FROM due, webhooks w WHERE n.id = due.id AND w.id = n.webhook
RETURNING n.id, n.kind, n.pool, n.subject, n.words, n.facts, n.at, w.form, w.secret, w.url, jsonb_array_length(n.attempts) AS number
""")
_RECORD = text("""
UPDATE notices SET state = :state, due_at = :due_at, attempts = jsonb_set(attempts, '{-1}', CAST(:attempt AS jsonb))
WHERE id = :notice AND state = 'waiting' AND jsonb_array_length(attempts) = :number
""")


class PostgresClaims:
    """Implements `deliveries.DeliveryStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, now: datetime) -> Sequence[Claimed]:
        begun = msgspec.json.encode([NoticeAttempt(at=now, problem=UNKNOWN_END)]).decode()
        given = {"now": now, "until": now + LEASE, "each": OF_ONE_WEBHOOK, "most": AT_ONCE, "begun": begun}

        async def work(connection: AsyncConnection) -> Sequence[Claimed]:
            await connection.execute(_GIVE_UP, {"now": now, "most": MOST_ATTEMPTS})
            return [_claimed(row) for row in await connection.execute(_CLAIM, given)]

        return await self._database.writing(work)

    async def record(self, outcome: Outcome, now: datetime) -> None:
        delivered = outcome.attempt.problem is None
        state = NoticeState.DELIVERED if delivered else NoticeState.WAITING if outcome.due_at else NoticeState.FAILED
        attempt = msgspec.json.encode(outcome.attempt).decode()
        given = {"notice": outcome.notice, "number": outcome.number, "due_at": outcome.due_at, "state": state, "attempt": attempt}

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_RECORD, given)

        await self._database.writing(work)


def _claimed(row: Any) -> Claimed:
    return Claimed(message=read(Message, row), url=row.url, number=row.number)
