"""The instance as the protocols use it: they submit work to the engine, and get whole answers or streams.

Prefill queue, prefix cache, pace of decoding, failure injection and metrics are the same for every path. A protocol
only reads a request and writes the response in its own format.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.failures import FailureKind
from fairlead_simulator.engine_server.kv_transfers import KvTransfers
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.request_errors import RequestInvalid
from fairlead_simulator.engine_server.requests import Generation
from fairlead_simulator.engine_server.sleeping import SleepMode
from fairlead_simulator.engine_server.tokens import ByteTokenizer
from fairlead_simulator.engine_server.work import Run, StreamForm, Work

RANK_HEADER = b"x-data-parallel-rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """Settings of the server, apart from the settings of its engine. `ready_at` is the time at which the engine is
    ready, in seconds of `time.monotonic`.
    """

    model: str
    bytes_per_token: int
    body_limit_bytes: int
    context_tokens: int
    ready_at: float
    id_prefix: str
    created: int
    """Creation time of the served model, in Unix seconds, as `/v1/models` reports it."""
    version: str


class Rank(NamedTuple):
    """A data-parallel rank, with its own batch and cache."""

    pacer: EnginePacer
    transfers: KvTransfers


class ServedInstance:
    """One simulated instance behind HTTP. `now` returns the Unix time that responses contain. `others` are the
    data-parallel ranks after the first; each has its own engine.
    """

    def __init__(
        self,
        settings: InstanceSettings,
        pacer: EnginePacer,
        transfers: KvTransfers,
        answers: AnswerBook,
        now: Callable[[], float] = time.time,
        kv_event_sources: Mapping[str, Any] | None = None,
        others: Sequence[Rank] = (),
        sleep_mode: SleepMode | None = None,
    ) -> None:
        self.settings = settings
        self.kv_event_sources = dict(kv_event_sources or {})
        """Rank → the addresses of its KV events; empty if no KV events are published."""
        self.tokenizer = ByteTokenizer(settings.bytes_per_token)
        self.ranks = (Rank(pacer, transfers), *others)
        self.sleep_mode = sleep_mode
        """The sleep of the instance; None if the engine has no paths for sleeping."""
        self.load = 0
        """Number of requests being served on paths that compute."""
        self.answered: dict[tuple[str, str, str], int] = {}
        """Number of HTTP responses by handler, method and class of status."""
        self._answers = answers
        self._now = now
        self._numbers = itertools.count()

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self.settings.ready_at

    def now(self) -> int:
        """Return the Unix time in whole seconds."""
        return int(self._now())

    def new_id(self, prefix: str) -> str:
        """Return an id with this prefix that no other response has."""
        return f"{prefix}{self.settings.id_prefix}{next(self._numbers):x}"

    def rank_of(self, exchange: Exchange) -> Rank:
        """Return the rank that the header `x-data-parallel-rank` names. If the header is absent or not an integer,
        return the least loaded rank, where a waiting request counts as much as four running requests. Raises
        RequestInvalid.
        """
        try:
            named = int(exchange.headers[RANK_HEADER])
        except (KeyError, ValueError):
            return min(self.ranks, key=lambda rank: 4 * rank.pacer.engine.instance.waiting + rank.pacer.engine.instance.running)
        if not 0 <= named < len(self.ranks):
            raise RequestInvalid(f"data_parallel_rank {named} is out of range [0, {len(self.ranks)}).")
        return self.ranks[named]

    def submit(
        self,
        rank: Rank,
        work: Work,
        *,
        slow_factor: float = 1.0,
        streaming: bool = False,
        priority: int = 0,
        arrived_at: float = -1.0,
        fetched: int | None = None,
    ) -> Run:
        """Submit work that arrived at the engine time `arrived_at`; -1 = now. `fetched` is the number of prompt tokens
        whose KV blocks were fetched from another engine; None = no blocks were fetched. Raises ContextTooLong or
        EngineOverloaded.
        """
        start = self._answers.start_of(work.prompt, continues=work.continues)
        remote = work.handover.fetches
        ticket = rank.pacer.submit(
            Generation(
                prompt=work.prompt,
                input_tokens=max(1, self.tokenizer.count(work.prompt)),
                output_tokens=work.max_tokens,
                answer=None if work.pooled else lambda tokens: self._answers.words(start, 0, tokens),
                slow_factor=slow_factor,
                priority=priority,
                finish_reason=work.finish_reason,
                pooled=work.pooled,
                kept=work.handover.holds and work.max_tokens == 1 and not streaming,
                arrived_at=arrived_at,
                fetched_tokens=fetched or 0,
                prefill_cached_tokens=None if fetched is None or remote is None else remote.cached_tokens,
            ),
            streaming,
        )
        return Run(work, ticket, self._answers, rank.pacer.engine.settings.block_tokens)

    async def compute(self, exchange: Exchange, works: Sequence[Work]) -> list[Run] | None:
        """Compute all works, and return their runs. Return None if the client has disconnected, or if its connection
        was cut by the failure that it asked for.
        """
        dies, rank = exchange.fails(FailureKind.DIE_MID_STREAM), self.rank_of(exchange)
        async with self._running(rank, exchange, works, streaming=dies) as runs:
            if dies:
                await runs[0].ticket.progress((works[0].max_tokens + 1) // 2 - 1)
                await exchange.cut()
                return None
            for run in runs:
                await run.ticket.end()
                if run.ticket.generation.kept and not run.ticket.gone:
                    run.held = await rank.transfers.hold(run.ticket.generation, self.new_id("kv-"), exchange.host)
            return None if any(run.ticket.gone for run in runs) else runs

    async def stream(self, exchange: Exchange, work: Work, form: StreamForm) -> Run | None:
        """Respond with a stream. Return the run once it is complete; None if the connection was closed before that."""
        dies_at = (work.max_tokens + 1) // 2 if exchange.fails(FailureKind.DIE_MID_STREAM) else None
        async with self._running(self.rank_of(exchange), exchange, (work,), streaming=True) as (run,):
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
    async def _running(self, rank: Rank, exchange: Exchange, works: Sequence[Work], *, streaming: bool) -> AsyncIterator[list[Run]]:
        """Submit the works, and yield their runs. Unfinished runs are aborted when the block ends or the client
        disconnects.
        """
        runs: list[Run] = []
        slow_factor = exchange.failure.factor if exchange.failure is not None else 1.0

        def give_up(_: object = None) -> None:
            for run in runs:
                run.ticket.give_up()

        watch: asyncio.Future[None] | None = None
        try:
            for work in works:
                remote = work.handover.fetches
                arrived_at = rank.pacer.now()
                fetched = None if remote is None else await rank.transfers.fetch(remote, work.prompt)
                given = self.submit(
                    rank,
                    work,
                    slow_factor=slow_factor,
                    streaming=streaming,
                    priority=exchange.priority,
                    arrived_at=arrived_at,
                    fetched=fetched,
                )
                runs.append(given)
            watch = exchange.watch()
            watch.add_done_callback(give_up)
            yield runs
        finally:
            if watch is not None:
                watch.cancel()
            give_up()
