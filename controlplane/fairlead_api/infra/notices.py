"""Notices with which one API process informs all others of a committed change.

Notices are small and ordered. A notice has at most 8,000 bytes, the limit of Postgres' NOTIFY.
"""

from collections.abc import Iterable, Iterator

import msgspec

from fairlead.reports.bindings import Binding
from fairlead.tables import PoolKey

_LIMIT = 7_600


class TableChanged(msgspec.Struct, frozen=True, tag="table"):
    """There is a new version of the routing table of the pool `pool`."""

    pool: PoolKey
    version: int


class PoolDeleted(msgspec.Struct, frozen=True, tag="pool_deleted"):
    """A pool was deleted."""

    pool: PoolKey


class BindingsChanged(msgspec.Struct, frozen=True, tag="bindings"):
    """Sessions were bound, moved or unbound."""

    bindings: tuple[Binding, ...]


class CredentialsRevoked(msgspec.Struct, frozen=True, tag="credentials_revoked"):
    """A token or a web session ended, so that remembered identities must be looked up again."""


class GatewayKeysChanged(msgspec.Struct, frozen=True, tag="gateway_keys"):
    """Gateway keys were made, changed or revoked."""


class KeptSessionsChanged(msgspec.Struct, frozen=True, tag="kept_sessions"):
    """The set of sessions for which every decision is kept has changed."""


Notice = TableChanged | PoolDeleted | BindingsChanged | CredentialsRevoked | GatewayKeysChanged | KeptSessionsChanged

_decoder: "msgspec.json.Decoder[Notice]" = msgspec.json.Decoder(Notice)


def decode(payload: str) -> Notice:
    """Decode the text of a notice.

    Raises msgspec.MsgspecError for a notice that this version does not know.
    """
    return _decoder.decode(payload)


def payloads(notices: Iterable[Notice]) -> Iterator[str]:
    """Yield the notices as texts within the size limit. A notice about bindings is split into as many texts as
    needed.
    """
    for notice in notices:
        if not isinstance(notice, BindingsChanged):
            yield msgspec.json.encode(notice).decode()
            continue
        part: list[Binding] = []
        size = 0
        for binding in notice.bindings:
            length = len(msgspec.json.encode(binding)) + 1
            if part and size + length > _LIMIT:
                yield msgspec.json.encode(BindingsChanged(tuple(part))).decode()
                part, size = [], 0
            part.append(binding)
            size += length
        if part:
            yield msgspec.json.encode(BindingsChanged(tuple(part))).decode()
