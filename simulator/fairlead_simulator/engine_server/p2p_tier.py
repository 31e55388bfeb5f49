"""The p2p tier of a served engine, after vLLM's OffloadingConnector with a secondary tier of the type p2p.

A request whose `kv_transfer_params` have `remote_kv_source` names an engine that may hold KV blocks of its prompt. The
engine that gets the request connects to the tier of the named engine, asks for the whole blocks that it lacks, and
fetches the leading ones that are there. The rest is computed. So every failure is a miss, and fails no request: an
engine that is gone, another model or hash seed, a transfer that breaks off. The source needs no request of its own, and
`kv_request_id` only names the exchange. Source: `v1/kv_offload/tiering/p2p` of vLLM 0.32.

The simulation differs in two ways. The engines exchange JSON in place of ZMQ messages. And host memory, out of which a
tier serves, holds exactly the blocks of the engine's prefix cache: the model has no second cache.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from fairlead_simulator.engine_model.costs import TransferCost
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.request_errors import RequestInvalid, shown

SOURCE_FIELD = "remote_kv_source"
HANDSHAKE_SECONDS = 30.0
"""Seconds after which a peer that does not answer is a miss: vLLM's VLLM_P2P_HANDSHAKE_TIMEOUT_S."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSource:
    """A request's `remote_kv_source`: the tier that may hold KV blocks of the prompt."""

    kv_request_id: str
    host: str
    port: object
    """As the request has it. vLLM does not check its type: with an unusable port, the peer cannot be reached."""


def read_source(params: Mapping[str, Any]) -> KvSource | None:
    """Return the tier that the request's `kv_transfer_params` name; None if any of the three fields is missing or
    empty, which vLLM ignores. Raises RequestInvalid.
    """
    named = params.get(SOURCE_FIELD)
    if not named:
        return None
    if not isinstance(named, dict):
        # vLLM's scheduler calls `.get` on it, and its engine core ends with the AttributeError.
        raise RequestInvalid(f"EngineCore encountered an issue: {SOURCE_FIELD}={shown(named)}", status=500, kind="InternalServerError")
    name, host, port = (named.get(field) for field in ("kv_request_id", "remote_host", "remote_port"))
    return KvSource(kv_request_id=str(name), host=str(host), port=port) if name and host and port else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What two engines must have in common, or blocks of one mean nothing to the other."""

    model: str
    block_tokens: int
    kv_bytes_per_token: int
    hash_seed: str


class P2PTier:
    """The p2p tier of one engine, as source and as target. It listens at `host` and `port` once `open` was called."""

    def __init__(self, pacer: EnginePacer, cost: TransferCost, layout: Layout, host: str, port: int) -> None:
        self._pacer = pacer
        self._cost = cost
        self._layout = asdict(layout)
        self._host = host
        self._port = port
        self._statistics = pacer.engine.statistics
        self._sending = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen for other engines. Raises OSError if the port is taken."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port)

    async def fetch(self, source: KvSource, prompt: bytes) -> int:
        """Fetch the leading whole blocks of the prompt that the source holds and this engine lacks. Return their
        tokens; 0 for a miss, whatever its cause.
        """
        engine = self._pacer.engine
        lacking = engine.missing_tokens(prompt, len(prompt))
        if not lacking:
            return 0
        try:
            fetched = await self._fetch(source, prompt)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, TimeoutError, asyncio.IncompleteReadError):
            fetched = 0
            self._statistics.p2p_failures += 1
        size = self._pacer.engine.settings.block_tokens
        self._statistics.p2p_queries += lacking // size
        self._statistics.p2p_hits += fetched // size
        return fetched

    async def _fetch(self, source: KvSource, prompt: bytes) -> int:
        patience = self._pacer.wall_seconds(HANDSHAKE_SECONDS)
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(source.host, int(str(source.port)))
        try:
            # The source answers to the one name at which it was configured, as vLLM's replies carry that name.
            asked = {"peer": f"{source.host}:{source.port}", "layout": self._layout, "bytes": len(prompt)}
            writer.write(orjson.dumps(asked) + b"\n" + prompt)
            async with asyncio.timeout(patience):
                answer = orjson.loads(await reader.readline())
            missing = self._pacer.engine.missing_tokens(prompt, answer["tokens"])
            if not missing:
                return 0
            seconds = self._cost.seconds(missing, answer["sending"])
            if await lost(reader, self._pacer.wall_seconds(seconds)):
                raise ConnectionResetError
            fetched = self._pacer.adopt(prompt, answer["tokens"])
            self._statistics.p2p_fetched(seconds, fetched * self._cost.bytes_per_token)
            return fetched
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer an engine's question, and keep the blocks until that engine has them or is gone."""
        try:
            asked = orjson.loads(await reader.readline())
            prompt = await reader.readexactly(asked["bytes"])
            if asked["peer"] != f"{self._host}:{self._port}":
                await reader.read()
            elif asked["layout"] == self._layout:
                await self._lend(reader, writer, prompt)
        except (OSError, ValueError, KeyError, TypeError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _lend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prompt: bytes) -> None:
        with self._pacer.engine.pinned(prompt) as tokens:
            writer.write(orjson.dumps({"tokens": tokens, "sending": self._sending}) + b"\n")
            self._sending += 1
            try:
                await writer.drain()
                await reader.read()
            finally:
                self._sending -= 1


async def lost(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Wait for this many seconds of real time. Return True if the other engine disconnected during the wait."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return not await reader.read(1)
    return False
