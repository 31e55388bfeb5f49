"""Sends notices by NOTIFY and receives them by LISTEN. Notices are sent when their transaction commits, and reach every
API process in order.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import msgspec
import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.connections import Connection
from fairlead_api.infra.notices import Notice, decode, payloads
from fairlead_api.infra.pulse import Pulse, shut

CHANNEL = "fairlead_changes"
QUIET_SECONDS = 5.0
"""Seconds without a notice after which the listening connection is tested. The test may take equally long."""

_log = logging.getLogger(__name__)


async def send(connection: AsyncConnection, notices: Sequence[Notice]) -> None:
    """Queue the notices. Postgres sends them if and when the transaction commits."""
    found = list(payloads(notices))
    if found:
        await connection.execute(
            text("SELECT pg_notify(:channel, payload) FROM json_array_elements_text(CAST(:payloads AS json)) AS payload"),
            {"channel": CHANNEL, "payloads": msgspec.json.encode(found).decode()},
        )


async def listen(pulse: Pulse, on_notice: Callable[[Notice], Awaitable[None]], on_gap: Callable[[], None]) -> None:
    """Listen for notices until cancelled. Calls `on_gap` after each connect and reconnect, because earlier notices may
    be lost. If the process's own test notice does not arrive, reports this to `pulse` and reconnects.
    """
    silent = False
    while True:
        try:
            connected_at = time.monotonic()
            connection = await pulse.connect("listen")
            try:
                await connection.execute(f"LISTEN {CHANNEL}")
                on_gap()
                silent = False
                arrive = await _hears(connection, pulse, on_notice)
                pulse.notices(arrive=arrive)
                while arrive and connected_at >= pulse.switched_at:
                    pulse.limits.lift(connection)
                    async for notification in connection.notifies(timeout=QUIET_SECONDS):
                        await _deliver(notification.payload, on_notice)
                    pulse.limits.set(connection, QUIET_SECONDS)
                    await connection.execute("SELECT 1")  # a dead connection may look merely quiet
            finally:
                shut(connection)  # so that ending does not wait for the server
                pulse.limits.lift(connection)
                await connection.close()
        except psycopg.Error as error:
            if not silent:
                _log.warning("listening for changes interrupted", extra={"error": str(error).strip()})
            silent = True
            await asyncio.sleep(0.5)


async def _hears(connection: Connection, pulse: Pulse, on_notice: Callable[[Notice], Awaitable[None]]) -> bool:
    """Return whether a notice that another connection sends arrives within QUIET_SECONDS. Behind a pooler in
    transaction mode it does not arrive, because the pooler soon gives the listening server connection to another
    client.
    """
    own = f"{CHANNEL}_{uuid4().hex}"
    await connection.execute(f"LISTEN {own}")
    sender = await pulse.connect("notify")
    try:
        await sender.execute(f"NOTIFY {own}")
    finally:
        shut(sender)
        pulse.limits.lift(sender)
        await sender.close()
    pulse.limits.lift(connection)
    found = await _first(connection, own, on_notice)
    await connection.execute(f"UNLISTEN {own}")
    return found


async def _first(connection: Connection, channel: str, on_notice: Callable[[Notice], Awaitable[None]]) -> bool:
    """Wait up to QUIET_SECONDS for a notice on `channel`, and return whether it arrived. Other notices that arrive in
    the meantime are delivered to `on_notice`.
    """
    async for notification in connection.notifies(timeout=QUIET_SECONDS):
        if notification.channel == channel:
            return True
        await _deliver(notification.payload, on_notice)
    return False


async def _deliver(payload: str, on_notice: Callable[[Notice], Awaitable[None]]) -> None:
    try:
        notice = decode(payload)
    except msgspec.MsgspecError as error:
        _log.warning("notice of an unknown kind ignored", extra={"error": str(error)})
        return
    await on_notice(notice)
