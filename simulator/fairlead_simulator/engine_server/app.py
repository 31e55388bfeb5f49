"""The ASGI application of one simulated engine."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import orjson

from fairlead_simulator.answers import AnswerBook
from fairlead_simulator.engine_requests import EngineRequest, Generation, Phase
from fairlead_simulator.engine_server.asgi import JSON, BodyTooLarge, ClientGone, Connections, Receive, Scope, Send, answer, read_body
from fairlead_simulator.engine_server.failures import HEADER, Failure, FailureKind, parse_failure
from fairlead_simulator.engine_server.metrics_text import CONTENT_TYPE, render_metrics
from fairlead_simulator.engine_server.openai_answers import DONE, StreamFormat, Usage, answer_document, error_document
from fairlead_simulator.engine_server.openai_requests import Endpoint, GenerationRequest, RequestInvalid, parse_generation
from fairlead_simulator.engine_server.pacing import EnginePacer, Ticket
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded

TIMING_HEADER = b"x-sim-timing"
"""A request with this header gets the engine's own timestamps in the answer's `timing` (seconds of engine time since its start)."""

_GENERATION_PATHS = {"/v1/chat/completions": Endpoint.CHAT, "/v1/completions": Endpoint.COMPLETIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What the server knows besides the model itself. `ready_at` in seconds of time.monotonic."""

    model: str
    bytes_per_token: int
    body_limit_bytes: int
    context_tokens: int
    ready_at: float
    id_prefix: str
    created: int
    """Unix seconds the model is said to have been created."""


class EngineApp:
    """Serves one engine. `now` is Unix seconds, for `created` in answers."""

    def __init__(
        self, settings: AppSettings, pacer: EnginePacer, answers: AnswerBook, connections: Connections, now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._pacer = pacer
        self._answers = answers
        self._connections = connections
        self._now = now
        self._numbers = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        endpoint = _GENERATION_PATHS.get(path)
        if endpoint is not None:
            if method == "POST":
                await self._generate(endpoint, scope, receive, send)
            else:
                await _refuse(send, 405, f"{path} takes POST, not {method}", "MethodNotAllowedError")
            return
        if method not in ("GET", "HEAD"):
            await _refuse(send, 405 if path in ("/health", "/metrics", "/v1/models", "/version") else 404, f"{method} {path}: not here")
        elif path == "/health":
            ready = self._ready
            await answer(send, 200 if ready else 503, b"" if ready else b"starting\n", b"text/plain")
        elif path == "/metrics":
            self._pacer.advance()
            await answer(send, 200, render_metrics(self._pacer.engine, self._settings.model), CONTENT_TYPE)
        elif path == "/v1/models":
            await answer(send, 200, self._models())
        elif path == "/version":
            await answer(send, 200, orjson.dumps({"version": f"fairlead-simulator {version('fairlead')}"}))
        else:
            await _refuse(send, 404, f"{path}: not here", "NotFoundError")

    @property
    def _ready(self) -> bool:
        return time.monotonic() >= self._settings.ready_at

    def _models(self) -> bytes:
        settings = self._settings
        card = {
            "id": settings.model,
            "object": "model",
            "created": settings.created,
            "owned_by": "fairlead-simulator",
            "root": settings.model,
            "parent": None,
            "max_model_len": settings.context_tokens,
        }
        return orjson.dumps({"object": "list", "data": [card]})

    async def _generate(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            failure = parse_failure(headers[HEADER]) if HEADER in headers else None
            if failure is not None and failure.kind is FailureKind.REFUSE:
                await self._cut(scope, receive)
                return
            body = await read_body(receive, self._settings.body_limit_bytes)
            if failure is not None and failure.kind is FailureKind.ERROR_500:
                await _refuse(send, 500, "injected by x-sim-fail", "InternalServerError")
                return
            if failure is not None and failure.kind is FailureKind.HANG:
                await _until_gone(receive)
                return
            if not self._ready:
                await _refuse(send, 503, "the engine is starting", "ServiceUnavailableError")
                return
            request = parse_generation(endpoint, body, self._settings.model)
            del body
            await self._serve(request, failure, TIMING_HEADER in headers, scope, receive, send)
        except ClientGone:
            return
        except RequestInvalid as error:
            await answer(send, error.status, error_document(str(error), error.kind, error.status, error.param))
        except BodyTooLarge:
            limit = self._settings.body_limit_bytes
            await _refuse(send, 413, f"the body exceeds {limit} bytes", "BadRequestError")
        except ContextTooLong as error:
            await _refuse(send, 400, str(error), "BadRequestError")
        except EngineOverloaded as error:
            body = error_document(str(error), "ServiceUnavailableError", 503)
            await answer(send, 503, body, headers=((b"retry-after", b"1"),))

    async def _serve(
        self, request: GenerationRequest, failure: Failure | None, timing: bool, scope: Scope, receive: Receive, send: Send
    ) -> None:
        prompt = request.prompt
        start = self._answers.start_of(prompt)
        number = next(self._numbers)
        request_id = f"{'chatcmpl' if request.endpoint is Endpoint.CHAT else 'cmpl'}-{self._settings.id_prefix}{number:x}"
        ticket = self._pacer.submit(
            EngineRequest(
                id=request_id,
                prompt=prompt,
                prompt_tokens=max(1, -(-len(prompt) // self._settings.bytes_per_token)),
                max_tokens=request.max_tokens,
                answer=lambda tokens: self._answers.words(start, 0, tokens),
                slow_factor=failure.factor if failure is not None else 1.0,
                finish_reason="length" if request.limited else "stop",
            ),
            streaming=request.stream or (failure is not None and failure.kind is FailureKind.DIE_MID_STREAM),
        )
        watch = asyncio.ensure_future(_until_gone(receive))
        watch.add_done_callback(lambda _: ticket.give_up())
        try:
            dies_at = (request.max_tokens + 1) // 2 if failure is not None and failure.kind is FailureKind.DIE_MID_STREAM else None
            if request.stream:
                await self._stream(request, request_id, start, ticket, dies_at, timing, scope, receive, send)
            else:
                await self._answer_whole(request, request_id, start, ticket, dies_at, timing, scope, receive, send)
        finally:
            watch.cancel()
            ticket.give_up()

    async def _stream(
        self,
        request: GenerationRequest,
        request_id: str,
        start: int,
        ticket: Ticket,
        dies_at: int | None,
        timing: bool,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        form = StreamFormat(request.endpoint, request_id, self._settings.model, int(self._now()), request.include_usage)
        sent = 0
        while True:
            await ticket.progress(sent)
            if ticket.gone:
                return
            tokens = ticket.tokens()
            parts: list[bytes] = []
            if sent == 0:
                parts.append(form.opening())
            if tokens > sent:
                parts.append(form.content(self._answers.words(start, sent, tokens)))
            sent = tokens
            ended = ticket.ended and (dies_at is None or tokens < dies_at)
            if ended:
                parts.append(form.finish(ticket.generation.request.finish_reason))
                if request.include_usage or timing:
                    extra = self._timing(ticket.generation) if timing else {}
                    parts.append(form.usage(_usage(ticket), extra))
                parts.append(DONE)
            await send({"type": "http.response.body", "body": b"".join(parts), "more_body": not ended})
            if ended:
                return
            if dies_at is not None and tokens >= dies_at:
                await self._cut(scope, receive)
                return

    async def _answer_whole(
        self,
        request: GenerationRequest,
        request_id: str,
        start: int,
        ticket: Ticket,
        dies_at: int | None,
        timing: bool,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if dies_at is not None:
            await ticket.progress(dies_at - 1)
            await self._cut(scope, receive)
            return
        await ticket.end()
        if ticket.gone:
            return
        generation = ticket.generation
        text = self._answers.words(start, 0, generation.generated).decode("ascii")
        extra = self._timing(generation) if timing else {}
        reason = generation.request.finish_reason
        body = answer_document(request.endpoint, request_id, self._settings.model, int(self._now()), text, reason, _usage(ticket), extra)
        await answer(send, 200, body, JSON)

    def _timing(self, generation: Generation) -> dict[str, Any]:
        stamps = {
            "arrived": generation.arrived_ns,
            "admitted": generation.admitted_ns,
            "first_token": generation.first_token_ns,
            "finished": generation.finished_ns,
        }
        return {"timing": {name: stamp * 1e-9 for name, stamp in stamps.items()} | {"preemptions": generation.preemptions}}

    async def _cut(self, scope: Scope, receive: Receive) -> None:
        """Close the connection as a crashed process would, and return once it is closed."""
        client = scope.get("client")
        transport = self._connections.get(tuple(client)) if client else None
        if transport is not None:
            transport.abort()
            await _until_gone(receive)


def _usage(ticket: Ticket) -> Usage:
    generation = ticket.generation
    assert generation.phase is Phase.FINISHED, "usage is told at the end"
    return Usage(
        prompt_tokens=generation.request.prompt_tokens,
        completion_tokens=generation.generated,
        cached_tokens=generation.cached_tokens,
    )


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, message: str, kind: str = "NotFoundError") -> None:
    await answer(send, status, error_document(message, kind, status))
