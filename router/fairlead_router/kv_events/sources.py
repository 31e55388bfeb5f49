"""Finds the endpoints at which an engine publishes KV events, in the engine's own report.

vLLM's versions respond to `GET /kv_event_sources` in three forms: an object keyed by data-parallel rank, a list of
ranks, or an object with such a list under `sources`. SGLang reports the ports of rank 0 under `kv_events` of `GET
/server_info`; the port of another rank is the port of rank 0 plus the rank's index. That response also has the number
of ranks, even if the engine sends no events, and whether the engine follows requests' priorities.

A router opens sockets according to the report, so the report is bounded. The number of sources is limited, and the
endpoints must be at the engine's own host or at a host that a setting (`Hosts`) names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from fairlead.plausibility import LONGEST_TOPIC, MOST_RANKS, MOST_SOURCES, PAGE_LEVELS, RANK, Hosts, shown
from fairlead_process.json_documents import decode_json

_VLLM_PATH = "/kv_event_sources"
_SGLANG_PATH = "/server_info"
_SOURCES_PATHS = {"simulated": _VLLM_PATH, "vllm": _VLLM_PATH, "sglang": _SGLANG_PATH}

_ENDPOINT = re.compile(r"tcp://(?P<host>[A-Za-z0-9._:%\[\]*-]{1,253}):(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS = frozenset({"*", "0.0.0.0", "[::]", "::"})  # noqa: S104  # what an engine bound, not what we bind


HOSTS_SETTING = "FAIRLEAD_KV_EVENT_HOSTS"
_LONGEST_RANK = 9
_MOST_FAULTS = 3


class SourcesUnreadable(Exception):
    """An exception: the response does not say at which endpoints the engine publishes. The message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """The source of one rank's events, with its endpoints."""

    rank: int
    endpoint: str
    replay_endpoint: str | None
    topic: str
    connects: bool = False
    """Whether the engine connects to `endpoint`, which then belongs to a router, instead of listening there."""


class ToldSources(NamedTuple):
    """The usable sources that an engine reports, in the order of their ranks, and a message about unusable sources
    (empty if there are none).
    """

    sources: tuple[EventSource, ...] = ()
    faults: str = ""


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
    enable_priority_scheduling: Any = None
    schedule_low_priority_values_first: Any = None


_SERVER_INFO = msgspec.json.Decoder(_ServerInfo)


def sources_path(engine_type: str) -> str:
    """Return the path at which an engine of this `engine.type` reports its sources."""
    return _SOURCES_PATHS[engine_type]


def read_ranks(answer: bytes, engine_type: str) -> tuple[int, ...]:
    """Return the data-parallel ranks in the response of `sources_path`. Raises SourcesUnreadable."""
    if sources_path(engine_type) != _SGLANG_PATH:
        return tuple(sorted(_told(answer)[0]))[:MOST_RANKS]
    size = _server_info(answer).dp_size
    return tuple(range(size)) if 0 < size <= MOST_RANKS else ()


def priority_fault(answer: bytes, engine_type: str) -> str | None:
    """Return the reason why the engine does not serve the highest priority first; None if it does, or if its response
    at `sources_path` does not say. Raises SourcesUnreadable.
    """
    if sources_path(engine_type) != _SGLANG_PATH:
        return None
    told = _server_info(answer)
    if told.enable_priority_scheduling is False:
        return "it runs without --enable-priority-scheduling, so it ignores the priority of a request's class, or answers 503"
    if told.schedule_low_priority_values_first is True:
        return "it runs with --schedule-low-priority-values-first, so it serves the lowest class first; start it without"
    return None


_OWN_HOST_ONLY = Hosts()


def read_sources(answer: bytes, engine_type: str, address: str, hosts: Hosts = _OWN_HOST_ONLY) -> ToldSources:
    """Return the sources of the engine at `address` (host:port). It has no sources if the engine publishes nothing.

    If an endpoint is bound to all addresses, the source has the same port at the engine's own host. Raises
    SourcesUnreadable.
    """
    host = address.rpartition(":")[0]
    told, faults = _of_server_info(answer) if sources_path(engine_type) == _SGLANG_PATH else _told(answer)
    published = [(rank, one) for rank, one in sorted(told.items()) if one.endpoint is not None and one.publisher in (None, "zmq")]
    found: list[EventSource] = []
    for rank, one in published[:MOST_SOURCES]:
        source = _source(rank, one, _Place(host, hosts), faults)
        found += [] if source is None else [source]
    if len(published) > MOST_SOURCES:
        faults.insert(0, f"it names {len(published)} sources; {MOST_SOURCES} are followed")
    more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return ToldSources(tuple(found), "; ".join(faults[:_MOST_FAULTS]) + more)


class _Place(NamedTuple):
    """An engine's own host, and the other hosts at which its endpoints may be."""

    host: str
    hosts: Hosts

    def reached(self, endpoint: str) -> str | None:
        """Return the endpoint to which a subscriber connects; None if the endpoint's host is not allowed for this
        engine. Raises SourcesUnreadable.
        """
        matched = _ENDPOINT.fullmatch(endpoint)
        if matched is None or not 0 < int(matched["port"]) < 65536:
            raise SourcesUnreadable(f"endpoint {shown(endpoint)!r} cannot be connected to; let the engine publish at tcp://*:PORT")
        named = matched["host"]
        if named in _EVERY_ADDRESS or "*" in named or named == self.host:
            return f"tcp://{self.host}:{matched['port']}"
        return endpoint if self.hosts.allow(named) else None


def _source(rank: int, one: "_Told", place: _Place, faults: list[str]) -> EventSource | None:
    assert one.endpoint is not None
    if len(one.topic or "") > LONGEST_TOPIC:
        faults.append(f"the topic of rank {rank} has {len(one.topic or '')} characters; {LONGEST_TOPIC} are allowed")
        return None
    try:
        endpoint = place.reached(one.endpoint)
        replay = None if one.replay_endpoint is None else place.reached(one.replay_endpoint)
    except SourcesUnreadable as fault:
        faults.append(str(fault))
        return None
    if one.replay_endpoint is not None and replay is None:
        faults.append(f"its replay_endpoint {shown(one.replay_endpoint)!r} is at another host; let it bind *, or set {HOSTS_SETTING}")
    return EventSource(
        rank=rank, endpoint=endpoint or one.endpoint, replay_endpoint=replay, topic=one.topic or "", connects=endpoint is None
    )


def _server_info(answer: bytes) -> _ServerInfo:
    try:
        return decode_json(answer, _SERVER_INFO, deepest=PAGE_LEVELS)
    except msgspec.MsgspecError as error:
        raise SourcesUnreadable(
            f"{_SGLANG_PATH} answered with a document that does not describe sources of KV events: {shown(str(error))}"
        ) from None


def _of_server_info(answer: bytes) -> tuple[Mapping[int, _Told], list[str]]:
    told = _server_info(answer).kv_events
    if told is None:
        return {}, []
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
    }, []


def _told(answer: bytes) -> tuple[Mapping[int, _Told], list[str]]:
    """Return the report about each rank, by rank index, and a message per impossible rank. Raises SourcesUnreadable."""
    try:
        listed = _listed(answer)
    except msgspec.MsgspecError as error:
        raise SourcesUnreadable(
            f"{_VLLM_PATH} answered with a document that does not describe sources of KV events: {shown(str(error))}"
        ) from None
    named = {place if one.data_parallel_rank is None else one.data_parallel_rank: one for place, one in enumerate(listed)}
    faults = [RANK.words("a rank", rank) for rank in named if not RANK.holds(rank)]
    return {rank: one for rank, one in named.items() if RANK.holds(rank)}, faults


def _listed(answer: bytes) -> list[_Told]:
    try:
        return decode_json(answer, _ENVELOPED, deepest=PAGE_LEVELS).sources
    except msgspec.ValidationError:
        told = _ANSWER.decode(answer)
    if isinstance(told, list):
        return told
    if not all(key.isascii() and key.isdigit() and len(key) <= _LONGEST_RANK for key in told):
        raise SourcesUnreadable(f"{_VLLM_PATH} answered an object whose keys are not ranks")
    for key, one in told.items():
        one.data_parallel_rank = int(key)
    return list(told.values())
