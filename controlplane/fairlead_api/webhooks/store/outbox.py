"""Writes notices inside the transaction of the reported change, so that they are stored only if it commits."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.webhooks.events import Event

QUIET_MINUTES = 10
"""Minutes for which a webhook gets no further notice about the same subject. The limit applies only to kinds of notices
that may be caused every few seconds.
"""

# A webhook that is deleted at this moment is left out: its row is locked, and read again.
_ADD = text("""
INSERT INTO notices (id, webhook, kind, pool, subject, words, facts, at, state, due_at, attempts)
SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), w.id, e.kind, e.pool, e.subject, e.words, e.facts, CAST(:now AS timestamptz), 'waiting',
CAST(:now AS timestamptz), '[]'
FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS e (kind text, pool text, subject text, words text, facts jsonb, quiet boolean)
JOIN webhooks w ON (w.kinds = '{}' OR e.kind = ANY(w.kinds)) AND (w.pools = '{}' OR e.pool = ANY(w.pools))
WHERE NOT e.quiet OR NOT EXISTS (SELECT 1 FROM notices n WHERE n.webhook = w.id AND n.kind = e.kind AND n.pool = e.pool
AND n.subject = e.subject AND n.at > CAST(:now AS timestamptz) - make_interval(mins => :minutes))
FOR KEY SHARE OF w
""")


async def write(connection: AsyncConnection, events: Sequence[Event], now: datetime) -> None:
    """For each event, write one notice for each webhook that wants such events, to be delivered at once."""
    if events:
        rows = [{**msgspec.to_builtins(event), "quiet": event.comes_and_goes} for event in events]
        given = {"events": msgspec.json.encode(rows).decode(), "now": now, "minutes": QUIET_MINUTES}
        await connection.execute(_ADD, given)
