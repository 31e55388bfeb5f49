"""The simulated engine's KV events: vLLM's messages over ZMQ, with a socket for replays.

A message has three frames: the topic; the batch's sequence number (8 bytes, big endian, counted from 0); and the batch
as msgpack: `[timestamp, events, rank]`. Each event is a map with the key `type`. With `arrays`, as from older engines,
it is an array whose first element is the type. A client requests a replay by sending a sequence number. The reply has
all kept batches from that number on, each with its number, and ends with the number -1 and an empty batch.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import zmq

from fairlead.errors import InvalidInput
from fairlead.kv_events.engine_hashes import EngineHashing
from fairlead_simulator.engine_server.tokens import ByteTokenizer

Event = dict[str, Any]

_POLL_SECONDS = 0.05
_LAST = (-1).to_bytes(8, "big", signed=True)


class PrefixCacheEvents:
    """A watcher of a KV block pool. `take` returns the pool's events since the previous call, in vLLM's form."""

    def __init__(self, tokenizer: ByteTokenizer, block_tokens: int, hashing: EngineHashing) -> None:
        self._tokenizer = tokenizer
        self._block_tokens = block_tokens
        self._hashing = hashing
        self._events: list[Event] = []

    def stored(self, parent: bytes | None, text: bytes) -> tuple[bytes, ...]:
        token_ids = self._tokenizer.ids(text)
        size, hashing = self._block_tokens, self._hashing
        names: list[bytes] = []
        for begin in range(0, len(token_ids), size):
            names.append(hashing.digest(names[-1] if names else parent, token_ids[begin : begin + size]))
        self._events.append(
            {
                "type": "BlockStored",
                "block_hashes": [hashing.formed(name) for name in names],
                "parent_block_hash": None if parent is None else hashing.formed(parent),
                "token_ids": token_ids,
                "block_size": size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None] * len(names),
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            }
        )
        return tuple(names)

    def cleared(self) -> None:
        self._events.append({"type": "AllBlocksCleared"})

    def removed(self, names: Sequence[bytes]) -> None:
        """Add one event for each removed block. vLLM, too, publishes a separate event for each block."""
        self._events += (
            {"type": "BlockRemoved", "block_hashes": [self._hashing.formed(name)], "medium": "GPU", "group_idx": 0} for name in names
        )

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """Settings of vLLM's `--kv-events-config`. The publisher binds the endpoint if it is a wildcard address (`*` or
    `::`) or a local one (`ipc://`, `inproc://`); otherwise it connects to the endpoint.
    """

    endpoint: str
    replay_endpoint: str | None
    topic: str
    buffer_steps: int
    arrays: bool = False
    """Whether events are encoded as arrays, as in vLLM before version 0.26."""


class KvEventPublisher:
    """A publisher of one rank's batches. It runs on its own thread and also serves replays. If the endpoint is `*` with
    port 0, the publisher binds a free port of `host`.

    Raises zmq.ZMQError if an endpoint cannot be used.
    """

    def __init__(self, settings: PublisherSettings, host: str, rank: int = 0) -> None:
        self._settings = settings
        self._rank = rank
        self._context = zmq.Context()
        self._publish = self._context.socket(zmq.PUB)
        self._publish.linger = 0
        self.endpoint = _opened(self._publish, _of_rank(settings.endpoint, rank), host)
        self._replay: zmq.Socket[bytes] | None = None
        self.replay_endpoint: str | None = None
        if settings.replay_endpoint is not None:
            self._replay = self._context.socket(zmq.ROUTER)
            self._replay.linger = 0
            self.replay_endpoint = _opened(self._replay, _of_rank(settings.replay_endpoint, rank), host)
        self._batches: queue.SimpleQueue[tuple[float, list[Event]]] = queue.SimpleQueue()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=settings.buffer_steps)
        threading.Thread(target=self._run, name="kv-events", daemon=True).start()

    def publish(self, events: list[Event]) -> None:
        """Send a batch of events with the present time as its timestamp. The call never blocks."""
        self._batches.put((time.time(), events))

    def source(self) -> dict[str, Any]:
        """Return the rank's entry in the response of `GET /kv_event_sources`."""
        settings = asdict(self._settings)
        del settings["arrays"]
        return (
            {"enable_kv_cache_events": True, "publisher": "zmq"}
            | settings
            | {"endpoint": self.endpoint, "replay_endpoint": self.replay_endpoint}
        )

    def _run(self) -> None:
        topic, number = self._settings.topic.encode(), 0
        while True:
            if self._replay is not None and self._replay.poll(0):
                self._answer(self._replay)
            try:
                stamp, events = self._batches.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            batch = [stamp, [_as_array(event) for event in events] if self._settings.arrays else events, self._rank]
            payload = msgspec.msgpack.encode(batch)
            self._publish.send_multipart((topic, number.to_bytes(8, "big"), payload))
            self._kept.append((number, payload))
            number += 1

    def _answer(self, replay: "zmq.Socket[bytes]") -> None:
        frames = replay.recv_multipart()
        if len(frames) != 3:
            return  # no request of a client that waits for answers
        client, begin = frames[0], int.from_bytes(frames[2], "big")
        old = self._settings.arrays
        named = () if old else (self._settings.topic.encode(),)  # vLLM 0.32 repeats the topic, older ones did not
        for number, payload in self._kept:
            if number >= begin:
                replay.send_multipart((client, b"", *named, number.to_bytes(8, "big"), payload))
        replay.send_multipart((client, b"", *(() if old else (b"",)), _LAST, b""))


def open_publishers(settings: PublisherSettings, host: str, ranks: int) -> list[KvEventPublisher]:
    """Open a publisher for each rank. Raises InvalidInput if an endpoint cannot be used."""
    try:
        return [KvEventPublisher(settings, host, rank) for rank in range(ranks)]
    except zmq.ZMQError as error:
        given = " and ".join(filter(None, (settings.endpoint, settings.replay_endpoint)))
        raise InvalidInput("--kv-events-endpoint", given, f"give ZMQ endpoints that are free, such as tcp://*:5557 ({error})") from None


def _opened(socket: "zmq.Socket[bytes]", endpoint: str, host: str) -> str:
    """Bind the socket to the endpoint, or connect it. Return the endpoint with its actual port."""
    if not any(sign in endpoint for sign in ("*", "::", "ipc://", "inproc://")):
        socket.connect(endpoint)
        return endpoint
    if not endpoint.endswith(":0"):
        socket.bind(endpoint)
        return endpoint
    socket.bind(endpoint.replace("*", host))
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT)).rstrip("\0")


def _of_rank(endpoint: str, rank: int) -> str:
    """Return the endpoint of a rank. As in vLLM, its port is the configured port plus the rank."""
    before, sign, port = endpoint.rpartition(":")
    return f"{before}{sign}{int(port) + rank}" if endpoint.startswith("tcp://") and port.isdecimal() and int(port) else endpoint


def _as_array(event: Event) -> list[object]:
    if event["type"] == "BlockStored":
        return [event[name] for name in ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")]
    return [event[name] for name in ("type", "block_hashes", "medium")]
