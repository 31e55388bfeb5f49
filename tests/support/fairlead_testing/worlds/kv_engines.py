"""A prefix cache that behaves as vLLM's and reports its changes as KV events, and recordings of its events as bytes in
every encoding.

It follows vLLM's implementation, not Fairlead's. Physical blocks are in one queue of free blocks, with the tails of
prompts before their heads. Two requests that compute the same block make two copies. A block is removed from the cache
when it is taken from the queue.
"""

import random
from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.kv_events.engine_hashes import EngineHashing, HashForm
from fairlead.kv_events.events import BlockHash

Event = dict[str, Any]
"""An event as it is encoded: a map with `type`."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Block:
    block_hash: BlockHash | None = None
    users: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Running:
    """A request in the engine."""

    token_ids: list[int]
    hashes: list[BlockHash]
    blocks: list[_Block]
    cached_tokens: int


class KvEngine:
    """A cache of `capacity` blocks of `block_size` tokens. `take_events` returns the events since its last call."""

    def __init__(self, *, capacity: int = 60, block_size: int = 4, hashing: EngineHashing | None = None) -> None:
        self.block_size = block_size
        self._hashing = hashing or EngineHashing(algorithm="sha256_cbor", seed="0")
        self._free: OrderedDict[_Block, None] = OrderedDict.fromkeys(_Block() for _ in range(capacity))
        self._cached: dict[BlockHash, list[_Block]] = {}
        self._events: list[Event] = []

    def schedule(self, token_ids: Sequence[int]) -> Running:
        """Accept a prompt and return it as a running request.

        Its longest cached prefix is reused, but never the whole prompt, and the rest is cached.
        """
        hashes = self._hashes(token_ids)
        hits: list[_Block] = []
        for block_hash in hashes[: (len(token_ids) - 1) // self.block_size]:
            if block_hash not in self._cached:
                break
            block = self._cached[block_hash][0]
            block.users += 1
            self._free.pop(block, None)
            hits.append(block)
        running = Running(token_ids=list(token_ids), hashes=[], blocks=hits, cached_tokens=len(hits) * self.block_size)
        running.hashes = hashes[: len(hits)]
        self._fill(running)
        return running

    def answer(self, running: Running, token_ids: Sequence[int]) -> None:
        """Decode these tokens and free the request's blocks. Keys and values of the last token are never computed."""
        running.token_ids += token_ids[:-1]
        self._fill(running)
        for block in reversed(running.blocks):
            block.users -= 1
            if not block.users:
                self._free[block] = None

    def reset(self) -> None:
        """Empty the prefix cache."""
        for blocks in self._cached.values():
            for block in blocks:
                block.block_hash = None
        self._cached.clear()
        self._events.append({"type": "AllBlocksCleared"})

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of tokens of this prompt that the engine would reuse now."""
        depth = 0
        for block_hash in self._hashes(token_ids)[: (len(token_ids) - 1) // self.block_size]:
            if block_hash not in self._cached:
                break
            depth += 1
        return depth * self.block_size

    def _fill(self, running: Running) -> None:
        known = len(running.hashes)
        hashes = self._hashes(running.token_ids)
        while len(running.blocks) * self.block_size < len(running.token_ids):
            block, _ = self._free.popitem(last=False)
            self._evict(block)
            block.users = 1
            running.blocks.append(block)
        new = hashes[known:]
        if not new:
            return
        for block, block_hash in zip(running.blocks[known:], new, strict=False):
            block.block_hash = block_hash
            self._cached.setdefault(block_hash, []).append(block)
        size = self.block_size
        self._events.append(
            {
                "type": "BlockStored",
                "block_hashes": new,
                "parent_block_hash": hashes[known - 1] if known else None,
                "token_ids": running.token_ids[known * size : len(hashes) * size],
                "block_size": size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None] * len(new),
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            }
        )
        running.hashes = hashes

    def _evict(self, block: _Block) -> None:
        if block.block_hash is None:
            return
        copies = self._cached[block.block_hash]
        copies.remove(block)
        if not copies:
            del self._cached[block.block_hash]
        self._events.append({"type": "BlockRemoved", "block_hashes": [block.block_hash], "medium": "GPU", "group_idx": 0})
        block.block_hash = None

    def _hashes(self, token_ids: Sequence[int]) -> list[BlockHash]:
        return list(self._hashing.block_hashes(token_ids, self.block_size))


def as_map(event: Event) -> object:
    """Return an event in the encoding of the newest engines: a map."""
    return event


def as_array(event: Event) -> object:
    """Return an event in the encoding of older engines: an array of the name and the fields, without defaults at the
    end.
    """
    if event["type"] == "AllBlocksCleared":
        return ["AllBlocksCleared"]
    if event["type"] == "BlockRemoved":
        return ["BlockRemoved", event["block_hashes"], event["medium"]]
    return ["BlockStored", *(event[name] for name in ("block_hashes", "parent_block_hash", "token_ids", "block_size"))]


def payload(stamp: float, events: Sequence[Event], *, rank: int | None = 0, encode: Callable[[Event], object] = as_map) -> bytes:
    """Return the bytes of a batch of events."""
    return msgspec.msgpack.encode([stamp, [encode(event) for event in events], rank])


@dataclass(slots=True, kw_only=True)
class RecordedEngine:
    """An engine that serves made-up conversations, two at a time, and a recorder of its events."""

    engine: KvEngine = field(default_factory=KvEngine)
    encode: Callable[[Event], object] = as_map
    topic: str = "kv@pod-0@tiny"
    rank: int = 0
    first_number: int = 0
    seed: int = 1
    start: float = 1.0

    def rows(self, requests: int) -> list[dict[str, Any]]:
        """Return the recording's rows in order of arrival."""
        chance = random.Random(self.seed)
        prefixes = [[chance.randrange(50_000) for _ in range(chance.randint(8, 26))] for _ in range(5)]
        talks: list[list[int]] = []
        running: deque[tuple[dict[str, Any], Running]] = deque()
        rows: list[tuple[float, dict[str, Any]]] = []
        number, now = self.first_number, self.start
        for name in range(requests):
            if len(running) == 2:
                now = self._finish(running.popleft(), now, chance, talks, rows)
                number += self._publish(number, now, rows, chance)
            prompt = list(chance.choice(talks[-6:] or prefixes) if chance.random() < 0.4 else chance.choice(prefixes))
            prompt += [chance.randrange(50_000) for _ in range(chance.randint(1, 12))]
            request = {"kind": "request", "id": name, "sent": now, "prompt_token_ids": prompt}
            now += 0.004
            started = self.engine.schedule(prompt)
            request["cached_tokens"] = started.cached_tokens
            running.append((request, started))
            number += self._publish(number, now, rows, chance)
        while running:
            now = self._finish(running.popleft(), now, chance, talks, rows)
            number += self._publish(number, now, rows, chance)
        return [row for _, row in sorted(rows, key=lambda each: each[0])]

    def _finish(
        self,
        ended: tuple[dict[str, Any], Running],
        now: float,
        chance: random.Random,
        talks: list[list[int]],
        rows: list[tuple[float, dict[str, Any]]],
    ) -> float:
        request, running = ended
        output = [chance.randrange(50_000) for _ in range(chance.randint(1, 9))]
        self.engine.answer(running, output)
        now += 0.03
        talk = request["prompt_token_ids"] + output
        if len(talk) < 60:
            talks.append(talk)
        rows.append((now, request | {"done": now, "output_token_ids": output}))
        return now + 0.001

    def _publish(self, number: int, now: float, rows: list[tuple[float, dict[str, Any]]], chance: random.Random) -> int:
        events = self.engine.take_events()
        if not events:
            return 0
        arrived = max([now + 0.0002 + chance.random() * 0.02, *(row["at"] for _, row in rows if row["kind"] == "event")])
        body = b64encode(payload(1.7e9 + now, events, rank=self.rank, encode=self.encode)).decode()
        rows.append((arrived, {"kind": "event", "at": arrived, "topic": self.topic, "seq": number, "payload": body}))
        return 1


def digests(algorithm: str) -> EngineHashing:
    """Return the hashing of an engine that sends whole digests, with a seed that cannot be guessed."""
    return EngineHashing(algorithm=algorithm, seed="9071", form=HashForm.DIGEST)
