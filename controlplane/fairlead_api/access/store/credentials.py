"""Stores credentials in Postgres. A credential's row is found by the hash of its secret, and the hash is compared again
in constant time.
"""

import hmac
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, func, insert, select, update
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.access.credentials import ABSOLUTE, ID_DIGITS, IDLE, Held
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller, Login, digest
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotAuthenticated, NotFound, StoreUnavailable
from fairlead_api.infra.notices import CredentialsRevoked
from fairlead_api.infra.paging import page
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.access import AccessRole, Identity, LoginLinkRequest, TokenItem, WebSessionItem
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.pages import Page

_NOTE_USE = timedelta(minutes=1)

_LINK, _TOKEN = "login-link", "token:"
"""Prefixes of an identity's `source` for identities that signed in with a login link or a token."""


class PostgresAccess:
    """Implements `access.credentials.AccessStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def identify(self, key: bytes, kind: str, now: datetime) -> Held | None:
        table = tables.api_tokens if kind == "flt" else tables.web_sessions
        async with self._database.reading() as connection:
            row = (await connection.execute(select(table).where(table.c.token_hash == key))).one_or_none()
        if row is None or not hmac.compare_digest(bytes(row.token_hash), key) or row.revoked_at is not None or row.expires_at <= now:
            return None
        if kind == "fls" and row.last_used_at <= now - IDLE:
            return None
        if row.last_used_at is None or row.last_used_at < now - _NOTE_USE:

            async def note(connection: AsyncConnection) -> None:
                await connection.execute(update(table).where(table.c.token_hash == key).values(last_used_at=now))

            with suppress(StoreUnavailable):  # a read-only database still identifies the caller
                await self._database.writing(note)
        if kind == "flt":
            return Held(identity=read(Identity, row, subject=row.name, source=f"{_TOKEN}{row.id}"))
        return Held(identity=read(Identity, row), opened_by=None if row.opened_by is None else bytes(row.opened_by))

    async def redeem(self, key: bytes, session: bytes, login: Login, now: datetime) -> Identity | None:
        links = tables.login_links

        async def work(connection: AsyncConnection) -> Identity | None:
            used = update(links).where(links.c.token_hash == key, links.c.used_at.is_(None), links.c.expires_at > now).values(used_at=now)
            row = (await connection.execute(used.returning(links))).one_or_none()
            if row is None:
                return None
            identity = read(Identity, row, source=f"{_LINK} of {row.created_by}", expires_at=now + ABSOLUTE)
            await _open(connection, session, Held(identity=identity), login, now)
            return identity

        return await self._database.writing(work)

    async def open_session(self, session: bytes, held: Held, login: Login, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await _open(connection, session, held, login, now)

        await self._database.writing(work)

    async def close_session(self, caller: Caller, now: datetime) -> None:
        sessions = tables.web_sessions

        async def work(connection: AsyncConnection) -> None:
            closed = update(sessions).where(sessions.c.token_hash == caller.key, sessions.c.revoked_at.is_(None)).values(revoked_at=now)
            if (await connection.execute(closed.returning(sessions.c.subject))).scalar_one_or_none() is not None:
                await notifying.send(connection, [CredentialsRevoked()])
                await audit_log.append(connection, [caller.draft(AuditAction.LOGOUT, "web")], now)

        await self._database.writing(work)

    async def add_link(self, key: bytes, request: LoginLinkRequest, expires_at: datetime, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(
                insert(tables.login_links).values(
                    token_hash=key,
                    subject=request.subject,
                    role=request.role,
                    created_by=_maker(caller.identity),
                    created_at=now,
                    expires_at=expires_at,
                    namespaces=request.namespaces,
                )
            )
            draft = replace(
                caller.draft(AuditAction.LOGIN_LINK_CREATED, request.subject),
                after={"role": request.role, "namespaces": request.namespaces, "minutes": request.minutes},
            )
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)

    async def sessions(self, cursor: str | None, limit: int, owner: Identity | None, now: datetime) -> Page[WebSessionItem]:
        table = tables.web_sessions
        living = (table.c.revoked_at.is_(None), table.c.expires_at > now, table.c.last_used_at > now - IDLE)
        query = select(table).where(*living, *_owned(owner))
        async with self._database.reading() as connection:
            keys = (table.c.created_at, table.c.subject, table.c.last_used_at)
            return await page(connection, query, keys, _session, cursor=cursor, limit=limit)

    async def revoke_session(self, session_id: str, owner: Identity | None, caller: Caller, now: datetime) -> None:
        table = tables.web_sessions
        named = func.left(func.encode(table.c.token_hash, "hex"), ID_DIGITS) == session_id

        async def work(connection: AsyncConnection) -> None:
            ended = (
                update(table).where(named, table.c.revoked_at.is_(None), table.c.expires_at > now, *_owned(owner)).values(revoked_at=now)
            )
            found = (await connection.execute(ended.returning(table.c.subject, table.c.source))).one_or_none()
            if found is None:
                raise NotFound("web session", session_id)
            await notifying.send(connection, [CredentialsRevoked()])
            told = {"subject": found.subject, "source": found.source}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.SESSION_REVOKED, session_id), before=told)], now)

        await self._database.writing(work)

    async def tokens(self, cursor: str | None, limit: int, within: Sight) -> Page[TokenItem]:
        table = tables.api_tokens
        query = select(table).where(*_all_within(within))
        async with self._database.reading() as connection:
            return await page(connection, query, (table.c.created_at, table.c.id), partial(read, TokenItem), cursor=cursor, limit=limit)

    async def add_token(self, item: TokenItem, key: bytes, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(
                insert(tables.api_tokens).values(
                    id=item.id,
                    token_hash=key,
                    name=item.name,
                    role=item.role,
                    created_at=item.created_at,
                    created_by=item.created_by,
                    expires_at=item.expires_at,
                    namespaces=item.namespaces,
                )
            )
            draft = replace(
                caller.draft(AuditAction.TOKEN_CREATED, item.id),
                after={
                    "name": item.name,
                    "role": item.role,
                    "namespaces": item.namespaces,
                    "expires_at": item.expires_at.isoformat(),
                },
            )
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)

    async def revoke_token(self, token_id: str, within: Sight, caller: Caller, now: datetime) -> None:
        tokens, sessions = tables.api_tokens, tables.web_sessions

        async def work(connection: AsyncConnection) -> None:
            row = (
                await connection.execute(select(tokens).where(tokens.c.id == token_id, *_all_within(within)).with_for_update())
            ).one_or_none()
            if row is None:
                raise NotFound("token", token_id)
            if row.revoked_at is not None:
                return
            await connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_at=now))
            await connection.execute(
                update(sessions).where(sessions.c.source == f"{_TOKEN}{token_id}", sessions.c.revoked_at.is_(None)).values(revoked_at=now)
            )
            await notifying.send(connection, [CredentialsRevoked()])
            draft = replace(
                caller.draft(AuditAction.TOKEN_REVOKED, token_id), before={"name": row.name, "role": row.role, "namespaces": row.namespaces}
            )
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)

    async def namespaces(self) -> Sequence[str]:
        """Return the namespaces that have pools."""
        pools = tables.pools
        async with self._database.reading() as connection:
            return (await connection.execute(select(pools.c.namespace).where(pools.c.deleted_at.is_(None)).distinct())).scalars().all()

    async def record(self, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)


def _maker(who: Identity) -> str:
    """Return one text with the name and the source of the person who made a credential. If that person logged in with a
    login link, the text has the first digits of the source's hash instead of the source.
    """
    source = who.source if not who.source.startswith(_LINK) else f"{_LINK} {digest(who.source).hex()[:ID_DIGITS]}"
    return f"{who.subject} ({source})"


def _owned(owner: Identity | None) -> list[ColumnElement[bool]]:
    table = tables.web_sessions
    return [] if owner is None else [table.c.subject == owner.subject, table.c.source == owner.source]


def _all_within(namespaces: Sight) -> list[ColumnElement[bool]]:
    """Return the SQL conditions for tokens that give no right outside these namespaces; no condition for all
    namespaces.
    """
    table = tables.api_tokens
    if namespaces is None:
        return []
    beyond = table.c.namespaces.op("-")(cast(sorted(namespaces), ARRAY(Text)))
    return [table.c.role == AccessRole.NONE, beyond == cast({}, JSONB)]


def _session(row: Any) -> WebSessionItem:
    return read(WebSessionItem, row, id=bytes(row.token_hash).hex()[:ID_DIGITS], current=False)


async def _open(connection: AsyncConnection, session: bytes, held: Held, login: Login, now: datetime) -> None:
    """Store a web session. Raises NotAuthenticated if the session is opened with an API token that was revoked a moment
    ago.
    """
    identity = held.identity
    if identity.source.startswith(_TOKEN):
        tokens = tables.api_tokens.c
        good = select(tokens.id).where(tokens.id == identity.source.removeprefix(_TOKEN), tokens.revoked_at.is_(None))
        # locked, so that a later revocation sees and ends the session
        if (await connection.execute(good.with_for_update(read=True))).one_or_none() is None:
            raise NotAuthenticated("token-invalid", "the token was revoked")
    await connection.execute(
        insert(tables.web_sessions).values(
            token_hash=session,
            subject=identity.subject,
            role=identity.role,
            source=identity.source,
            created_at=now,
            last_used_at=now,
            expires_at=identity.expires_at,
            namespaces=identity.namespaces,
            address=login.address,
            groups=list(identity.groups),
            opened_by=held.opened_by,
        )
    )
    user = upsert(tables.users).values(subject=identity.subject, role=identity.role, source=identity.source, last_login_at=now)
    seen = {"role": identity.role, "source": identity.source, "last_login_at": now}
    await connection.execute(user.on_conflict_do_update(index_elements=["subject"], set_=seen))
    draft = AuditDraft(
        actor=identity.subject,
        role=identity.role,
        source=identity.source,
        action=AuditAction.LOGIN,
        object="web",
        after={"address": login.address},
        request_id=login.request_id,
    )
    await audit_log.append(connection, [draft], now)
