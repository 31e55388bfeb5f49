"""The lines of the stream that routers follow: one JSON object per line; its member `type` names the kind of line.

The control API encodes with these classes and routers decode with them, so a member cannot be renamed on one side only.
Kinds of lines and members that this version does not know are skipped, because a router may be older or newer than the
API.
"""

from collections.abc import Iterator
from typing import get_args

import msgspec

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.bindings import Binding
from fairlead.reports.engines import EngineMemory
from fairlead.reports.shares import OthersShare
from fairlead.tables import PoolKey, RoutingTable
from fairlead_client.problems import UnreadableLine

LONGEST_LINE = 64 * 1024 * 1024
"""Maximum length of a line in bytes; longer lines are an error."""


class TableLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="table"):
    """A pool's routing table (the first or a newer version), and the observed figures of the pool's engines, if any.
    All routers observed these figures, or they were fitted to the pool's requests.
    """

    table: RoutingTable
    known: EngineMemory | None = None


class PoolDeletedLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="pool_deleted"):
    """The pool no longer exists. The router must forget its table and its bindings."""

    pool: PoolKey


class BindingsLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="bindings"):
    """Sessions that were bound or moved.

    A binding may arrive twice or late. If a session gets several bindings, the binding with the highest version counts.
    """

    bindings: tuple[Binding, ...] = ()


class GatewayKeysLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="gateway_keys"):
    """All keys of the gateway's clients that are not revoked. A key that is missing here is no longer valid."""

    keys: tuple[GatewayKeyFacts, ...] = ()
    begins: bool = False
    """Whether this line begins a snapshot, which ends with `synced`."""


class OthersLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="others"):
    """Other routers' requests in flight for a pool, sent to a router that decides alone. Each line replaces the pool's
    previous line; a line is sent every second while there is work to report.
    """

    share: OthersShare


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose decisions are all kept until a time (Unix seconds)."""

    pool: PoolKey
    session: str
    until: float


class KeptSessionsLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="kept_sessions"):
    """All sessions of all pools whose decisions are kept on request, each with its end."""

    sessions: tuple[KeptSession, ...] = ()


class SyncedLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="synced"):
    """The snapshot is complete, and changes follow.

    The line is sent again after the API lost the connection to its database and reached the database again.
    """


class HeartbeatLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    """Nothing changed. A heartbeat is sent every 2 s, so that silence means a dead connection."""


StreamLine = TableLine | PoolDeletedLine | BindingsLine | GatewayKeysLine | KeptSessionsLine | OthersLine | SyncedLine | HeartbeatLine


class _Kind(msgspec.Struct):
    type: str


_encoder = msgspec.json.Encoder()
_lines: "msgspec.json.Decoder[StreamLine]" = msgspec.json.Decoder(StreamLine)
_kinds = msgspec.json.Decoder(_Kind)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(StreamLine))


def encode_line(line: StreamLine) -> bytes:
    """Return the line with its line break."""
    return _encoder.encode(line) + b"\n"


def decode_line(line: bytes | bytearray) -> StreamLine | None:
    """Decode a line without its line break; return None for a kind that this version does not know. Raises
    UnreadableLine.
    """
    try:
        return _lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _is_of_unknown_kind(line):
            return None
        raise UnreadableLine(f"unreadable line: {error if isinstance(error, msgspec.DecodeError) else 'it is not UTF-8'}") from error


def _is_of_unknown_kind(line: bytes | bytearray) -> bool:
    try:
        return _kinds.decode(line).type not in _KNOWN
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class LineCutter:
    """Splits a stream's chunks into lines, for one connection."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun = bytearray()

    def feed(self, piece: bytes) -> Iterator[StreamLine]:
        """Yield the lines of known kinds that this piece completes.

        Raises UnreadableLine, also for a line longer than `longest` bytes.
        """
        self._begun += piece
        if b"\n" in piece:
            *complete, self._begun = self._begun.split(b"\n")
            for line in complete:
                if line.strip() and (decoded := decode_line(line)) is not None:
                    yield decoded
        elif len(self._begun) > self._longest:
            raise UnreadableLine(f"a line is longer than {self._longest} bytes")
