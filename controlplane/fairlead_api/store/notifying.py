"""NOTIFY and LISTEN: notices leave with the commit of their transaction and reach every API process in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.services.notices import Notice, decode, payloads

CHANNEL = "fairlead_changes"
_log = logging.getLogger(__name__)


async def send(connection: AsyncConnection, notices: Sequence[Notice]) -> None:
    """Queues the notices; they go out when the transaction commits, or never."""
    found = list(payloads(notices))
    if found:
        await connection.execute(
            text("SELECT pg_notify(:channel, payload) FROM unnest(CAST(:payloads AS text[])) AS payload"),
            {"channel": CHANNEL, "payloads": found},
        )


async def listen(url: str, on_notice: Callable[[Notice], Awaitable[None]], on_gap: Callable[[], None]) -> None:
    """Runs until cancelled. Calls `on_gap` each time it (re)connected, because what was sent in between is lost."""
    target = url.replace("postgresql+psycopg://", "postgresql://", 1)
    silent = False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                target, autocommit=True, connect_timeout=5, keepalives_idle=5, keepalives_interval=2, keepalives_count=3
            ) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                on_gap()
                silent = False
                while True:
                    async for notification in connection.notifies(timeout=15):
                        await _deliver(notification.payload, on_notice)
                    await connection.execute("SELECT 1")  # a dead connection may look merely quiet
        except psycopg.Error as error:
            if not silent:
                _log.warning("listening for changes interrupted", extra={"error": str(error).strip()})
            silent = True
            await asyncio.sleep(0.5)


async def _deliver(payload: str, on_notice: Callable[[Notice], Awaitable[None]]) -> None:
    try:
        notice = decode(payload)
    except msgspec.MsgspecError as error:
        _log.warning("notice of an unknown kind ignored", extra={"error": str(error)})
        return
    await on_notice(notice)
