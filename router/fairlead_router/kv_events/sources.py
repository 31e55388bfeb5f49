"""Where an engine publishes KV events, from its answer to `GET /kv_event_sources`.

vLLM's versions word it in three ways: an object by data-parallel rank, a list of ranks, and that list under `sources`.
"""

import re
from dataclasses import dataclass

import msgspec

SOURCES_PATH = "/kv_event_sources"

_ENDPOINT = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS = frozenset({"*", "0.0.0.0", "[::]", "::"})  # noqa: S104  # what an engine bound, not what we bind


class SourcesUnreadable(Exception):
    """The answer names no endpoints that can be connected to; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """What one rank of an engine publishes; endpoints as a subscriber connects to them."""

    rank: int
    endpoint: str
    replay_endpoint: str | None
    topic: str


class _Told(msgspec.Struct):
    endpoint: str | None = None
    replay_endpoint: str | None = None
    topic: str | None = None
    data_parallel_rank: int | None = None
    publisher: str | None = None


class _Enveloped(msgspec.Struct):
    sources: list[_Told]


_ANSWER: msgspec.json.Decoder[dict[str, _Told] | list[_Told]] = msgspec.json.Decoder(dict[str, _Told] | list[_Told])
_ENVELOPED = msgspec.json.Decoder(_Enveloped)


def read_sources(answer: bytes, address: str) -> tuple[EventSource, ...]:
    """The sources of the engine at `address` (host:port), by rank; none if it publishes nothing.

    An endpoint bound to every address is one at the engine's own. Raises SourcesUnreadable.
    """
    host = address.rpartition(":")[0]
    told = _told(answer)
    found = [
        EventSource(
            rank=rank,
            endpoint=_reachable(one.endpoint, host),
            replay_endpoint=None if one.replay_endpoint is None else _reachable(one.replay_endpoint, host),
            topic=one.topic or "",
        )
        for rank, one in told.items()
        if one.endpoint is not None and one.publisher in (None, "zmq")
    ]
    return tuple(sorted(found, key=lambda source: source.rank))


def _told(answer: bytes) -> dict[int, _Told]:
    try:
        return {place if one.data_parallel_rank is None else one.data_parallel_rank: one for place, one in enumerate(_listed(answer))}
    except msgspec.MsgspecError as error:
        raise SourcesUnreadable(f"{SOURCES_PATH} answered what names no sources: {error}") from None


def _listed(answer: bytes) -> list[_Told]:
    try:
        return _ENVELOPED.decode(answer).sources
    except msgspec.ValidationError:
        told = _ANSWER.decode(answer)
    if isinstance(told, list):
        return told
    if not all(key.isdecimal() for key in told):
        raise SourcesUnreadable(f"{SOURCES_PATH} answered an object whose keys are no ranks")
    for key, one in told.items():
        one.data_parallel_rank = int(key)
    return list(told.values())


def _reachable(endpoint: str, host: str) -> str:
    matched = _ENDPOINT.fullmatch(endpoint)
    if matched is None or not 0 < int(matched["port"]) < 65536:
        raise SourcesUnreadable(f"endpoint {endpoint[:100]!r} cannot be connected to; let the engine publish at tcp://*:PORT")
    return f"tcp://{host if matched['host'] in _EVERY_ADDRESS else matched['host']}:{matched['port']}"
