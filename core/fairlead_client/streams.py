"""What comes over the streams: lines for routers, events for people."""

from dataclasses import dataclass

import msgspec

from fairlead.reports import Binding
from fairlead.tables import PoolKey, RoutingTable
from fairlead_client.problems import ApiUnreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """A new (or first) version of a pool's routing table."""

    table: RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDeletedLine:
    """The pool is gone; forget its table and bindings."""

    pool: PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingsLine:
    """Bindings set or moved. They may repeat or come late: keep the one with the highest version per session."""

    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedLine:
    """The snapshot is complete; what follows are changes. May come again after the API lost and regained its database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatLine:
    """Nothing changed; sent every 2 s so that silence means a dead connection."""


StreamLine = TableLine | PoolDeletedLine | BindingsLine | SyncedLine | HeartbeatLine

_LINE_TYPES: dict[str, type[StreamLine]] = {
    "table": TableLine,
    "pool_deleted": PoolDeletedLine,
    "bindings": BindingsLine,
    "synced": SyncedLine,
    "heartbeat": HeartbeatLine,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """One server-sent event: `event` is the topic, `data` its JSON text, `id` what to send back as Last-Event-ID."""

    event: str
    data: str
    id: str | None


def decode_line(line: bytes | str) -> StreamLine | None:
    """One NDJSON line of the router stream; None for a type this version does not know (newer API). Raises ApiUnreachable if not JSON."""
    try:
        document = msgspec.json.decode(line)
        kind = _LINE_TYPES.get(document["type"])
        return None if kind is None else msgspec.convert(document, kind)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise ApiUnreachable(f"the control API sent a stream line that cannot be read: {error}") from error
