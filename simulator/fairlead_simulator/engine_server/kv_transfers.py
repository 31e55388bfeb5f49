"""Transfers of KV blocks from one served engine to another: vLLM's handshake, and the modelled transfer time.

The engine that prefilled the prompt holds the KV blocks. Its response names the address of its side channel, in
`kv_transfer_params`. The engine that decodes the answer connects to this side channel, waits for as long as the
transfer takes, and reports the end of the transfer. Then it has the prompt's whole blocks in its own cache. Blocks that
are not fetched before their lease ends are freed. In the simulation KV blocks have no content, because both engines
know the prompt's text. The only message asks whether the blocks are still held.
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead_simulator.engine_model.costs import TransferCost
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.request_errors import RequestInvalid, unsuitable
from fairlead_simulator.engine_server.requests import Generation

FIELD = "kv_transfer_params"
_REMOTE = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBlocks:
    """The address from which the KV blocks of a prompt can be fetched. `cached_tokens` is the number of prompt tokens
    that the engine at this address had cached before it computed the rest.
    """

    engine: str
    request: str
    host: str
    port: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A request's instruction about its KV blocks. If `holds`, the engine keeps the blocks for another engine. If
    `fetches` is given, the engine fetches the blocks from that address.
    """

    holds: bool = False
    fetches: RemoteBlocks | None = None


NO_HANDOVER = Handover()


def read_handover(document: Mapping[str, Any]) -> Handover:
    """Return the instruction in the request's `kv_transfer_params`. As in vLLM, blocks are not fetched if the
    parameters for that are incomplete. Raises RequestInvalid.
    """
    params = document.get(FIELD)
    if params is None:
        return NO_HANDOVER
    if not isinstance(params, dict):
        raise unsuitable(FIELD, params, "a valid dictionary")
    engine, request, host, port = (params.get(field) for field in _REMOTE)
    if not (params.get("do_remote_prefill") and params.get("remote_block_ids") and engine and request and host and isinstance(port, int)):
        return Handover(holds=bool(params.get("do_remote_decode")))
    cached = params.get("remote_prefill_cached_tokens")
    return Handover(
        fetches=RemoteBlocks(
            engine=str(engine), request=str(request), host=str(host), port=port, cached_tokens=cached if isinstance(cached, int) else 0
        )
    )


class HeldBlocks:
    """The held KV blocks of one finished prompt, until they are fetched or their lease ends."""

    __slots__ = ("expiry", "generation")

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.expiry: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """Settings of transfers. `lease_seconds` is the maximum engine time for which blocks are held. If blocks cannot be
    fetched, the request fails if `fails` is set; otherwise its prompt is computed again.
    """

    cost: TransferCost
    lease_seconds: float
    fails: bool
    port: int = 0


class KvTransfers:
    """The KV transfers of one engine, as sender and as receiver. The side channel is opened when blocks are held for
    the first time.
    """

    def __init__(self, pacer: EnginePacer, settings: TransferSettings) -> None:
        self._pacer = pacer
        self._settings = settings
        self._statistics = pacer.engine.statistics
        self._engine_id = str(uuid.uuid4())
        self._held: dict[str, HeldBlocks] = {}
        self._sending = 0
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()

    # ---- the end that prefilled

    async def hold(self, generation: Generation, request: str, host: str) -> dict[str, Any]:
        """Hold the KV blocks of a finished prompt. Return the parameters with which another engine can fetch them;
        `host` is the address at which that engine reaches this engine.
        """
        port = await self._side_channel(host)
        name = f"{request}-0-{uuid.uuid4().hex[:8]}"
        held = self._held[name] = HeldBlocks(generation)
        self._lease(name, held)
        settings = self._pacer.engine.settings
        blocks = -(-generation.input_tokens // settings.block_tokens)
        first = len(self._held) % max(1, settings.capacity_blocks - blocks + 1)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(range(first, first + blocks))],
            "remote_engine_id": self._engine_id,
            "remote_request_id": name,
            "remote_host": host,
            "remote_port": port,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": generation.input_tokens,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": generation.hit_tokens,
        }

    async def _side_channel(self, host: str) -> int:
        async with self._opening:
            if self._server is None:
                self._server = await asyncio.start_server(self._serve, host, self._settings.port)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _lease(self, name: str, held: HeldBlocks) -> None:
        seconds = self._pacer.wall_seconds(self._settings.lease_seconds)
        held.expiry = asyncio.get_running_loop().call_later(seconds, self._expire, name)

    def _expire(self, name: str) -> None:
        self._statistics.transfers_expired += 1
        self._free(name)

    def _free(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            if held.expiry is not None:
                held.expiry.cancel()
            self._pacer.release(held.generation)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a fetch by another engine: send the number of held tokens and the number of transfers that share the
        link, then wait for the end of the transfer.
        """
        try:
            asked = orjson.loads(await reader.readline())
            name = asked["request"]
            held = self._held.get(name) if asked["engine"] == self._engine_id else None
            answer = {"tokens": 0 if held is None else held.generation.input_tokens, "sending": self._sending}
            writer.write(orjson.dumps(answer) + b"\n")
            await writer.drain()
            if held is None:
                return
            if held.expiry is not None:
                held.expiry.cancel()  # the open connection renews the lease
            self._sending += 1
            try:
                done = await reader.readline()
            finally:
                self._sending -= 1
            if done:
                self._free(name)
            elif name in self._held:
                self._lease(name, held)
        except (OSError, ValueError, KeyError, TypeError):
            return  # not an engine that asks
        finally:
            writer.close()

    # ---- the end that decodes

    async def fetch(self, remote: RemoteBlocks, prompt: bytes) -> int | None:
        """Fetch the prompt's whole blocks from another engine. Return the number of tokens that were not cached before;
        None if the fetch failed, for example because the blocks are no longer held.

        Raises RequestInvalid in place of None if the engine's settings say that a failed fetch fails the request.
        """
        try:
            fetched = await self._fetch(remote, prompt)
        except (OSError, ValueError, KeyError, TimeoutError, asyncio.IncompleteReadError):
            fetched = None
        if fetched is None:
            self._statistics.transfers_failed += 1
            if self._settings.fails:
                message = f"the KV blocks of {remote.request} could not be loaded from {remote.host}:{remote.port}"
                raise RequestInvalid(message, status=500, kind="InternalServerError")
        return fetched

    async def _fetch(self, remote: RemoteBlocks, prompt: bytes) -> int | None:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(remote.host, remote.port)
        try:
            writer.write(orjson.dumps({"engine": remote.engine, "request": remote.request}) + b"\n")
            async with asyncio.timeout(CONNECT_SECONDS):
                answer = orjson.loads(await reader.readline())
            if not answer["tokens"]:
                return None
            missing = self._pacer.engine.missing_tokens(prompt, answer["tokens"])
            seconds = self._settings.cost.seconds(missing, answer["sending"]) if missing else 0.0
            if await self._lost(reader, self._pacer.wall_seconds(seconds)):
                return None
            self._statistics.transferred(seconds, missing * self._settings.cost.bytes_per_token)
            fetched = self._pacer.adopt(prompt, answer["tokens"])
            writer.write(b"done\n")
            await writer.drain()
            return fetched
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _lost(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        """Wait for this many seconds of real time. Return True if the other engine disconnected during the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return not await reader.read(1)
        return False
