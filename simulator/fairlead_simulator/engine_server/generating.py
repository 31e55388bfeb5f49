"""How protocols use the instance: pieces of work go into the one engine model, and come back as whole answers or as streams.

Prefill queue, prefix cache, decode pacing, failure injection and metrics are the same for every path; a protocol only reads a request and writes the
answer's form.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from fairlead_simulator.engine_requests import EngineRequest, Phase
from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.failures import FailureKind
from fairlead_simulator.engine_server.pacing import EnginePacer, Ticket
from fairlead_simulator.engine_server.tokens import ByteTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """What the server knows besides the model itself. `ready_at` in seconds of time.monotonic."""

    model: str
    bytes_per_token: int
    body_limit_bytes: int
    context_tokens: int
    ready_at: float
    id_prefix: str
    created: int
    """Unix seconds the model is said to have been created."""
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One prompt to compute and how long to answer. The model ends an answer by itself (`stop`) or at the client's limit (`length`)."""

    prompt: bytes
    max_tokens: int
    finish_reason: str = "length"
    pooled: bool = False
    """Only the prompt is computed, as for an embedding; nothing is generated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one answer. `created_tokens` are the prompt tokens in blocks the cache did not have."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    created_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Run:
    """A piece of work in the engine."""

    __slots__ = ("_answers", "_block_tokens", "_start", "ticket", "work")

    def __init__(self, work: Work, ticket: Ticket, answers: AnswerBook, block_tokens: int) -> None:
        self.work = work
        self.ticket = ticket
        self._answers = answers
        self._start = answers.start_of(work.prompt)
        self._block_tokens = block_tokens

    @property
    def prompt_tokens(self) -> int:
        return self.ticket.generation.request.prompt_tokens

    def words(self, first: int, stop: int) -> bytes:
        """Tokens `first..stop` of the answer: ASCII words that JSON need not escape."""
        return self._answers.words(self._start, first, stop)

    def text(self) -> str:
        """All that was answered."""
        return self.words(0, self.ticket.tokens()).decode("ascii")

    def usage(self) -> Usage:
        """Raises AssertionError before the end."""
        generation = self.ticket.generation
        assert generation.phase is Phase.FINISHED, "usage is told at the end"
        prompt = generation.request.prompt_tokens
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=0 if self.work.pooled else generation.generated,
            cached_tokens=generation.cached_tokens,
            created_tokens=max(0, prompt // self._block_tokens * self._block_tokens - generation.cached_tokens),
        )

    def timing(self) -> dict[str, Any]:
        """The engine's timestamps, for the request header that asks for them."""
        generation = self.ticket.generation
        stamps = {
            "arrived": generation.arrived_ns,
            "admitted": generation.admitted_ns,
            "first_token": generation.first_token_ns,
            "finished": generation.finished_ns,
        }
        return {"timing": {name: stamp * 1e-9 for name, stamp in stamps.items()} | {"preemptions": generation.preemptions}}


class StreamForm(Protocol):
    """How a protocol writes one stream, as bytes of server-sent events. `words` may be empty at the end."""

    def preface(self) -> bytes:
        """What is sent before the engine has made a token; may be empty."""

    def opening(self, run: Run) -> bytes:
        """What goes before the first words."""

    def content(self, words: bytes, tokens: int) -> bytes:
        """Some words, and how many tokens there are with them."""

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        """The last words and all that ends the stream; `extra` are fields for the last document."""


class Instance:
    """One simulated instance behind HTTP. `now` is Unix seconds, for times in answers."""

    def __init__(self, settings: InstanceSettings, pacer: EnginePacer, answers: AnswerBook, now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.tokenizer = ByteTokenizer(settings.bytes_per_token)
        self.pacer = pacer
        self.load = 0
        """Requests being served on the paths that compute."""
        self.answered: dict[tuple[str, str, str], int] = {}
        """HTTP answers by handler, method and class of status."""
        self._answers = answers
        self._now = now
        self._numbers = itertools.count()

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self.settings.ready_at

    def now(self) -> int:
        """Unix seconds."""
        return int(self._now())

    def new_id(self, prefix: str) -> str:
        """An id no other answer has."""
        return f"{prefix}{self.settings.id_prefix}{next(self._numbers):x}"

    def submit(self, work: Work, request_id: str, *, slow_factor: float = 1.0, streaming: bool = False) -> Run:
        """Queue work. Raises ContextTooLong or EngineOverloaded."""
        start = self._answers.start_of(work.prompt)
        ticket = self.pacer.submit(
            EngineRequest(
                id=request_id,
                prompt=work.prompt,
                prompt_tokens=max(1, self.tokenizer.count(work.prompt)),
                max_tokens=work.max_tokens,
                answer=None if work.pooled else lambda tokens: self._answers.words(start, 0, tokens),
                slow_factor=slow_factor,
                finish_reason=work.finish_reason,
                pooled=work.pooled,
            ),
            streaming,
        )
        return Run(work, ticket, self._answers, self.pacer.engine.settings.block_tokens)

    async def compute(self, exchange: Exchange, works: Sequence[Work], request_id: str) -> list[Run] | None:
        """Do all of it; None when the client has gone away (or was cut off, if it asked for that)."""
        dies = exchange.fails(FailureKind.DIE_MID_STREAM)
        async with self._running(exchange, works, request_id, streaming=dies) as runs:
            if dies:
                await runs[0].ticket.progress((works[0].max_tokens + 1) // 2 - 1)
                await exchange.cut()
                return None
            for run in runs:
                await run.ticket.end()
            return None if any(run.ticket.gone for run in runs) else runs

    async def stream(self, exchange: Exchange, work: Work, request_id: str, form: StreamForm) -> Run | None:
        """Answer as a stream; the run once it is complete, None when the client went away before."""
        dies_at = (work.max_tokens + 1) // 2 if exchange.fails(FailureKind.DIE_MID_STREAM) else None
        async with self._running(exchange, (work,), request_id, streaming=True) as (run,):
            ticket = run.ticket
            await exchange.begin_stream()
            preface = form.preface()
            if preface:
                await exchange.send_events(preface, last=False)
            sent = 0
            while True:
                await ticket.progress(sent)
                if ticket.gone:
                    return None
                tokens = ticket.tokens()
                ended = ticket.ended and (dies_at is None or tokens < dies_at)
                words = run.words(sent, tokens)
                events = form.opening(run) if sent == 0 else b""
                sent = tokens
                if ended:
                    events += form.closing(words, run, run.timing() if exchange.timing else {})
                elif words:
                    events += form.content(words, tokens)
                await exchange.send_events(events, last=ended)
                if ended:
                    return run
                if dies_at is not None and tokens >= dies_at:
                    await exchange.cut()
                    return None

    @asynccontextmanager
    async def _running(self, exchange: Exchange, works: Sequence[Work], request_id: str, *, streaming: bool) -> AsyncIterator[list[Run]]:
        """The works in the engine, given up when the block ends or the client goes away."""
        runs: list[Run] = []
        slow_factor = exchange.failure.factor if exchange.failure is not None else 1.0

        def give_up(_: object = None) -> None:
            for run in runs:
                run.ticket.give_up()

        watch: asyncio.Future[None] | None = None
        try:
            runs.extend(self.submit(work, request_id, slow_factor=slow_factor, streaming=streaming) for work in works)
            watch = exchange.watch()
            watch.add_done_callback(give_up)
            yield runs
        finally:
            if watch is not None:
                watch.cancel()
            give_up()
