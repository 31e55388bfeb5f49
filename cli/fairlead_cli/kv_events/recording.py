"""Records an engine: its KV events as they arrive, and requests with the cached tokens that the engine counted.

The requests are turns of conversations that have the same beginning, so that blocks are shared, used again and, in a
small cache, evicted. A few conversations are in progress at a time, but requests are sent one after the other. The file
has the format that `fairlead kv-events check` reads.
"""

import asyncio
import gzip
import random
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import httpx
import msgspec
import zmq
import zmq.asyncio

from fairlead.errors import FairleadError, InvalidInput
from fairlead_client.http_clients import LARGEST_ANSWER, BoundedClient
from fairlead_client.tls import client_context
from fairlead_process.clock import SteadyClock
from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, read_sources, sources_path

CONVERSATIONS = 8
"""Number of conversations in progress; when one has reached its maximum length, a new one takes its place."""
TURNS = 12
WORDS_A_TURN = 60
OUTPUT_TOKENS = 16
QUIET_SECONDS = 1.0
"""Seconds without an event after which all events of the last request have arrived."""
CONNECT_SECONDS = 1.0
"""Seconds to wait until a subscription is connected, because ZMQ does not report that; longer than any network
needs.
"""
_WORDS = (
    "river",
    "stone",
    "cloud",
    "amber",
    "nine",
    "lamp",
    "verse",
    "orbit",
    "maple",
    "copper",
    "quiet",
    "harbor",
    "winter",
    "signal",
    "tide",
)

_now = SteadyClock()
"""The recorder's clock, in seconds. It advances steadily, even if somebody sets the machine's clock."""


class EngineUnsuitable(FairleadError):
    """The engine lacks something that a recording needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The numbers of written batches and requests, and the sums of the requests' tokens."""

    batches: int
    requests: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class _Conversation:
    token_ids: list[int]
    turns: int = 0


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Sends requests to the engine at `url` and writes a row to `file` for each of them and for each event. `progress`
    is called after each request.
    """

    url: str
    engine_type: str
    model: str | None
    file: IO[bytes]
    progress: Callable[[], None]
    chance: random.Random
    batches: int = 0
    heard_at: float = field(default_factory=time.monotonic)
    sums: list[int] = field(default_factory=lambda: [0, 0])

    async def record(self, requests: int) -> Recorded:
        """Record this number of requests. Raises EngineUnsuitable, httpx.HTTPError, OSError."""
        async with BoundedClient(LARGEST_ANSWER, base_url=self.url, timeout=600.0, verify=client_context()) as engine:
            model = self.model or await _first_model(engine)
            sources = await self._sources(engine)
            with zmq.asyncio.Context() as context:
                listening = [asyncio.create_task(self._listen(context, source)) for source in sources]
                await asyncio.sleep(CONNECT_SECONDS)
                try:
                    await self._talk(engine, model, requests)
                    await self._until_quiet()
                finally:
                    for task in listening:
                        task.cancel()
                    await asyncio.gather(*listening, return_exceptions=True)
        if not self.batches:
            raise EngineUnsuitable(f"{self.url} published no KV events; start it with --kv-events-config, and allow {sources[0].endpoint}")
        return Recorded(batches=self.batches, requests=requests, prompt_tokens=self.sums[0], cached_tokens=self.sums[1])

    async def _sources(self, engine: httpx.AsyncClient) -> Sequence[EventSource]:
        answer = await engine.get(sources_path(self.engine_type))
        try:
            answer.raise_for_status()
            found, faults = read_sources(answer.content, self.engine_type, f"{urlsplit(self.url).hostname}:0")
        except (httpx.HTTPStatusError, SourcesUnreadable) as error:
            raise EngineUnsuitable(f"{self.url} names no endpoint of KV events: {error}") from None
        if not found or any(one.connects for one in found):
            why = f" ({faults})" if faults else ""
            raise EngineUnsuitable(
                f"{self.url} publishes no KV events that one can connect to{why}; start it with an endpoint tcp://*:PORT"
            )
        return found

    async def _listen(self, context: zmq.asyncio.Context, source: EventSource) -> None:
        with context.socket(zmq.SUB) as socket:
            socket.linger = 0
            socket.subscribe(source.topic)
            socket.connect(source.endpoint)
            while True:
                topic, number, payload = await socket.recv_multipart()
                self.batches += 1
                self.heard_at = time.monotonic()
                row = {
                    "topic": topic.decode("utf-8", "replace"),
                    "seq": int.from_bytes(number, "big"),
                    "payload": b64encode(payload).decode(),
                }
                self._write({"kind": "event", "at": _now(), **row})

    async def _talk(self, engine: httpx.AsyncClient, model: str, requests: int) -> None:
        preamble = await _tokens(engine, model, self._words(200))
        open_ones = [_Conversation(list(preamble)) for _ in range(CONVERSATIONS)]
        place = 0
        for number in range(requests):
            # another one each time: an engine may answer before it has stored the answer's last block
            place = (place + self.chance.randrange(1, CONVERSATIONS)) % CONVERSATIONS
            if open_ones[place].turns == TURNS:
                open_ones[place] = _Conversation(list(preamble))
            chosen = open_ones[place]
            chosen.token_ids += await _tokens(engine, model, self._words(WORDS_A_TURN))
            chosen.token_ids += await self._ask(engine, model, chosen.token_ids, number)
            chosen.turns += 1
            self.progress()

    async def _ask(self, engine: httpx.AsyncClient, model: str, prompt: list[int], number: int) -> list[int]:
        body = {"model": model, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "return_token_ids": True}
        sent = _now()
        answer = await engine.post("/v1/completions", json=body)
        done = _now()
        if answer.status_code >= 400:
            raise EngineUnsuitable(f"{self.url} refused a request of {len(prompt):,} tokens ({answer.status_code}): {answer.text[:200]}")
        document = answer.json()
        details = (document.get("usage") or {}).get("prompt_tokens_details") or {}
        if not isinstance(cached := details.get("cached_tokens"), int):
            raise EngineUnsuitable(
                f"{self.url} does not count cached tokens; start it with --enable-prompt-tokens-details (SGLang: --enable-cache-report)"
            )
        [choice] = document["choices"]
        output = choice.get("token_ids") or await _tokens(engine, model, choice.get("text") or "")
        row = {"id": number, "sent": sent, "done": done, "prompt_token_ids": prompt, "output_token_ids": output, "cached_tokens": cached}
        self._write({"kind": "request", **row})
        self.sums[0] += len(prompt)
        self.sums[1] += cached
        return list(output)

    async def _until_quiet(self) -> None:
        await asyncio.sleep(QUIET_SECONDS)
        while (rest := QUIET_SECONDS - (time.monotonic() - self.heard_at)) > 0:  # noqa: ASYNC110 - the end of a silence is no event
            await asyncio.sleep(rest)

    def _words(self, count: int) -> str:
        return " ".join(self.chance.choice(_WORDS) for _ in range(count)) + " "

    def _write(self, row: dict[str, Any]) -> None:
        self.file.write(msgspec.json.encode(row) + b"\n")


async def _first_model(engine: httpx.AsyncClient) -> str:
    answer = await engine.get("/v1/models")
    answer.raise_for_status()
    return str(answer.json()["data"][0]["id"])


async def _tokens(engine: httpx.AsyncClient, model: str, text: str) -> list[int]:
    """Return the ids of the text's tokens, without the tokens that the engine adds at the beginning of every prompt."""
    if not text:
        return []
    answer = await engine.post("/tokenize", json={"model": model, "prompt": text, "add_special_tokens": False})
    if answer.status_code >= 400:
        raise EngineUnsuitable(
            f"{engine.base_url} does not answer /tokenize ({answer.status_code}); it is needed to write prompts as tokens"
        )
    return list(answer.json()["tokens"])


def _created(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "xb")) if path.suffix == ".gz" else path.open("xb")


def record_to(
    path: Path, url: str, engine_type: str, model: str | None, requests: int, seed: int, progress: Callable[[], None]
) -> Recorded:
    """Write a recording to a file, gzipped if its name ends with `.gz`. If the recording fails, the file is removed.

    Raises InvalidInput for a file that cannot be written, EngineUnsuitable for an engine that reports too little.
    """
    try:
        file = _created(path)
    except OSError as error:
        raise InvalidInput("--out", str(path), f"name a file that can be written and does not exist yet ({error.strerror})") from None
    recorder = Recorder(url=url, engine_type=engine_type, model=model, file=file, progress=progress, chance=random.Random(seed))
    try:
        with file:
            return asyncio.run(recorder.record(requests))
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, httpx.HTTPError):
            raise EngineUnsuitable(
                f"{url} did not answer: {str(error) or type(error).__name__}; is it running, and is --engine right?"
            ) from None
        raise
