"""Where an engine publishes KV events, by its own word.

vLLM's versions answer `GET /kv_event_sources` in three ways: an object by data-parallel rank, a list of ranks, and that
list under `sources`. SGLang reports the ports of rank 0 under `kv_events` of `GET /server_info`; a rank adds its
number. That answer also has the number of ranks, with events or without.
"""

import re
from dataclasses import dataclass

import msgspec

from fairlead.targets import MOST_RANKS

_VLLM_PATH = "/kv_event_sources"
_SGLANG_PATH = "/server_info"
_SOURCES_PATHS = {"simulated": _VLLM_PATH, "vllm": _VLLM_PATH, "sglang": _SGLANG_PATH}

_ENDPOINT = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS = frozenset({"*", "0.0.0.0", "[::]", "::"})  # noqa: S104  # what an engine bound, not what we bind


class SourcesUnreadable(Exception):
    """The answer names no endpoints that can be connected to; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """The source of one rank's events; its endpoints are as a subscriber connects to them."""

    rank: int
    endpoint: str
    replay_endpoint: str | None
    topic: str
    connects: bool = False
    """Whether the engine connects to this endpoint, which then is a router's, and binds none."""


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


class _Publisher(msgspec.Struct):
    """`kv_events` of SGLang's `/server_info`."""

    publisher: str
    endpoint_host: str
    endpoint_port_base: int
    dp_size: int = 1
    topic: str = ""
    replay_endpoint_port_base: int | None = None


class _ServerInfo(msgspec.Struct):
    dp_size: int = 1
    kv_events: _Publisher | None = None


_SERVER_INFO = msgspec.json.Decoder(_ServerInfo)


def sources_path(engine_type: str) -> str:
    """Path where an engine of this `engine.type` reports its sources."""
    return _SOURCES_PATHS[engine_type]


def read_ranks(answer: bytes, engine_type: str) -> tuple[int, ...]:
    """The data-parallel ranks that the same answer names. Raises SourcesUnreadable."""
    if sources_path(engine_type) != _SGLANG_PATH:
        return tuple(sorted(_told(answer)))
    size = _server_info(answer).dp_size
    return tuple(range(size)) if 0 < size <= MOST_RANKS else ()


def read_sources(answer: bytes, engine_type: str, address: str) -> tuple[EventSource, ...]:
    """The sources of the engine at `address` (host:port), by rank; none if it publishes nothing.

    An endpoint bound to every address is one at the engine's own. Raises SourcesUnreadable.
    """
    host = address.rpartition(":")[0]
    told = _of_server_info(answer) if sources_path(engine_type) == _SGLANG_PATH else _told(answer)
    found = [
        EventSource(
            rank=rank,
            endpoint=_reachable(one.endpoint, host),
            replay_endpoint=None if one.replay_endpoint is None else _reachable(one.replay_endpoint, host),
            topic=one.topic or "",
            connects=_connects(one.endpoint, host),
        )
        for rank, one in told.items()
        if one.endpoint is not None and one.publisher in (None, "zmq")
    ]
    return tuple(sorted(found, key=lambda source: source.rank))


def _connects(endpoint: str, host: str) -> bool:
    """Whether the engine at this host connects to the endpoint: it binds one that names every address, or its own."""
    matched = _ENDPOINT.fullmatch(endpoint)
    return matched is not None and matched["host"] not in (*_EVERY_ADDRESS, host) and "*" not in endpoint


def _server_info(answer: bytes) -> _ServerInfo:
    try:
        return _SERVER_INFO.decode(answer)
    except msgspec.MsgspecError as error:
        raise SourcesUnreadable(f"{_SGLANG_PATH} answered what names no sources: {error}") from None


def _of_server_info(answer: bytes) -> dict[int, _Told]:
    told = _server_info(answer).kv_events
    if told is None:
        return {}
    if not 0 < told.dp_size <= MOST_RANKS:
        raise SourcesUnreadable(f"{_SGLANG_PATH} reports {told.dp_size} data-parallel ranks, which is not a number from 1 to {MOST_RANKS}")
    replay = told.replay_endpoint_port_base
    return {
        rank: _Told(
            endpoint=f"tcp://{told.endpoint_host}:{told.endpoint_port_base + rank}",
            replay_endpoint=None if replay is None else f"tcp://*:{replay + rank}",
            topic=told.topic,
            publisher=told.publisher,
        )
        for rank in range(told.dp_size)
    }


def _told(answer: bytes) -> dict[int, _Told]:
    try:
        return {place if one.data_parallel_rank is None else one.data_parallel_rank: one for place, one in enumerate(_listed(answer))}
    except msgspec.MsgspecError as error:
        raise SourcesUnreadable(f"{_VLLM_PATH} answered what names no sources: {error}") from None


def _listed(answer: bytes) -> list[_Told]:
    try:
        return _ENVELOPED.decode(answer).sources
    except msgspec.ValidationError:
        told = _ANSWER.decode(answer)
    if isinstance(told, list):
        return told
    if not all(key.isdecimal() for key in told):
        raise SourcesUnreadable(f"{_VLLM_PATH} answered an object whose keys are not ranks")
    for key, one in told.items():
        one.data_parallel_rank = int(key)
    return list(told.values())


def _reachable(endpoint: str, host: str) -> str:
    matched = _ENDPOINT.fullmatch(endpoint)
    if matched is None or not 0 < int(matched["port"]) < 65536:
        raise SourcesUnreadable(f"endpoint {endpoint[:100]!r} cannot be connected to; let the engine publish at tcp://*:PORT")
    return f"tcp://{host if matched['host'] in _EVERY_ADDRESS else matched['host']}:{matched['port']}"
