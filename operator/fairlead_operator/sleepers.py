"""Calls a pool's engines to find out whether they sleep, and to put them to sleep or wake them, by vLLM's
`/is_sleeping`, `/sleep` and `/wake_up`.

`/is_sleeping` only says that an engine computes nothing. It also returns true for a paused vLLM, and for a vLLM that
has not moved its weights away yet. Only `vllm:engine_sleep_state`, which vLLM sets once its call to sleep has ended,
says that the GPU's memory is free (vllm/v1/engine/core.py and async_llm.py of 0.32.0).

An engine responds to `/sleep` or `/wake_up` only after it has fallen asleep or is awake, which takes seconds. Therefore
these calls (orders) are sent in the background, and later rounds read the result from `/is_sleeping`. A lost response
or a killed operator does no harm. The danger: these paths are meant for developers, and anybody who reaches an engine's
port may call them too.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import aiohttp
import msgspec

from fairlead.engine_metrics import read_metrics
from fairlead.instances import InstanceState, Role
from fairlead.reconciling.observed import EngineSleep, PodHealth
from fairlead.reconciling.sleeping import PATIENCE_SECONDS
from fairlead_operator.observing.pods import Pod
from fairlead_process.json_documents import decode_json

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 2.0
_ANSWER_BYTES = 4096
_PAGE_BYTES = 4 << 20
_SLEEP_STATE = b"vllm:engine_sleep_state"
_AT_ONCE = 32
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class Engines(Protocol):
    """The calls to an engine at `address` (host:port). No call raises an error."""

    async def is_sleeping(self, address: str) -> EngineSleep:
        """Return the engine's answer to the question whether it sleeps."""

    async def gave_up_memory(self, address: str) -> bool:
        """Return whether the engine says that it has given up the memory of its GPU."""

    async def sleep(self, address: str) -> bool:
        """Have the engine move its weights to the host's memory (level 1); return False if it refuses."""

    async def wake(self, address: str) -> bool:
        """Have the engine wake up, so that it can compute again; return False if it refuses."""


class NoEngines:
    """Stands for engines that cannot be reached."""

    async def is_sleeping(self, address: str) -> EngineSleep:
        return EngineSleep.SILENT

    async def gave_up_memory(self, address: str) -> bool:
        return False

    async def sleep(self, address: str) -> bool:
        return True

    async def wake(self, address: str) -> bool:
        return True


class HttpEngines:
    """Engines over HTTP. The session opens with the first call."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def is_sleeping(self, address: str) -> EngineSleep:
        async with self._places:
            status, body = await self._call("GET", address, "/is_sleeping", _ANSWER_SECONDS)
        return read_answer(status, body)

    async def gave_up_memory(self, address: str) -> bool:
        async with self._places:
            status, body = await self._call("GET", address, "/metrics", _ANSWER_SECONDS, _PAGE_BYTES)
        return status == 200 and read_memory(body)

    async def sleep(self, address: str) -> bool:
        status, _ = await self._call("POST", address, "/sleep?level=1", PATIENCE_SECONDS)
        return status is None or status == 200

    async def wake(self, address: str) -> bool:
        status, _ = await self._call("POST", address, "/wake_up", PATIENCE_SECONDS)
        return status is None or status == 200

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(self, method: str, address: str, path: str, seconds: float, most: int = _ANSWER_BYTES) -> tuple[int | None, bytes]:
        """Return the status of the response (None without a response) and the beginning of its body."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, f"http://{address}{path}", timeout=limit, allow_redirects=False) as answer:
                return answer.status, await _beginning(answer.content, most)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None, b""


async def _beginning(content: aiohttp.StreamReader, most: int) -> bytes:
    """Return the first `most` bytes of a body, or the whole body if it is shorter."""
    read = bytearray()
    while len(read) < most and (chunk := await content.read(most - len(read))):
        read += chunk
    return bytes(read)


def read_memory(page: bytes) -> bool:
    """Return whether, by its metrics, each rank of the engine has moved its weights away or discarded them."""
    lines = [line for line in page.split(b"\n") if line.startswith(_SLEEP_STATE)]
    families = read_metrics(b"\n".join(lines)).families
    samples = [(one.labels.get("sleep_state"), one.value) for family in families for one in family.samples]
    gone = [value for state, value in samples if state in {"weights_offloaded", "discard_all"} and value == 1.0]
    awake = [value for state, value in samples if state == "awake"]
    return bool(awake) and not any(awake) and len(gone) == len(awake)


def read_answer(status: int | None, body: bytes) -> EngineSleep:
    """Read the response to `GET /is_sleeping`. An engine without that path responds with 404; an engine that is broken
    counts as silent.
    """
    if status in {404, 405, 501}:
        return EngineSleep.UNABLE
    with suppress(msgspec.DecodeError, TypeError, KeyError):
        told = decode_json(body, _ANY)["is_sleeping"]
        if status == 200 and isinstance(told, bool):
            return EngineSleep.ASLEEP if told else EngineSleep.AWAKE
    return EngineSleep.SILENT


class Sleepers:
    """The engines of one pool: their last sleep states, and the orders to sleep or wake up that are in progress."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._addresses: dict[str, str] = {}
        self._refusing: set[str] = set()
        """Instances whose engines refused to sleep, although they have the `/sleep` endpoint."""
        self._orders: dict[str, asyncio.Task[None]] = {}

    async def asked(self, pods: tuple[Pod, ...], roles: Collection[Role]) -> tuple[Pod, ...]:
        """Return the pods with the present sleep states of their engines. An engine is called if its role is in `roles`
        (the roles that keep instances asleep), or if its instance is asleep or waking up.
        """
        able = [pod for pod in pods if pod.address is not None and _is_asked(pod, roles)]
        self._addresses = {pod.instance.id: pod.address for pod in able if pod.address is not None}
        self._refusing &= self._addresses.keys()
        if not able:
            return pods
        answers = await asyncio.gather(*(self._engines.is_sleeping(address) for address in self._addresses.values()))
        known = dict(zip(self._addresses, answers, strict=True)) | dict.fromkeys(self._refusing, EngineSleep.UNABLE)
        return tuple(replace(pod, instance=replace(pod.instance, sleep=known.get(pod.instance.id, pod.instance.sleep))) for pod in pods)

    def put_to_sleep(self, instance: str) -> None:
        """Order an engine to sleep, unless another order to this engine is in progress."""
        self._order(instance, self._sleep(instance))

    def wake(self, instance: str) -> None:
        """Order an engine to wake up, unless another order to this engine is in progress."""
        self._order(instance, self._wake(instance))

    def _order(self, instance: str, call: Coroutine[Any, Any, None]) -> None:
        order = self._orders.get(instance)
        if instance not in self._addresses or (order is not None and not order.done()):
            call.close()
            return
        self._orders = {name: task for name, task in self._orders.items() if not task.done()}
        self._orders[instance] = asyncio.create_task(call, name=f"sleep of {instance}")

    async def _sleep(self, instance: str) -> None:
        if not await self._engines.sleep(self._addresses[instance]):
            logger.warning("the engine refuses to sleep", extra={"instance": instance})
            self._refusing.add(instance)

    async def _wake(self, instance: str) -> None:
        if not await self._engines.wake(self._addresses[instance]):
            logger.warning("the engine refuses to wake up", extra={"instance": instance})


def _is_asked(pod: Pod, roles: Collection[Role]) -> bool:
    one = pod.instance
    slept = one.state is InstanceState.ASLEEP or one.waking
    return one.health is PodHealth.READY and not one.terminating and not one.adopted and (slept or one.role in roles)
