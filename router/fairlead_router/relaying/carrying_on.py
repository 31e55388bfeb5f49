"""Continues answers whose engine is lost or must be left: another instance generates the rest, in the same stream for
the client.

While an answer passes, the call stores the part that its client has received (`protocols.answers_so_far`). If the
engine dies, stalls or must be left, the scheduler names another instance. This instance gets the client's request with
the stored text appended (`protocols.continuations`). The events of its answer are converted so that they continue the
first part (`protocols.continued_streams`). If that is impossible, the client gets the error event that ends a broken
stream, and the reason is counted.

So a drain ends in seconds. Most answers of a draining instance end within the pool's `handOverAfter`. After that, other
instances continue the remaining answers where possible. All other answers stay until their end, or until the drain's
timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import orjson

from fairlead.instances import InstanceState
from fairlead.reports.decisions import HANDED_OVER
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.tables import ANSWERS_CONTINUE, PoolKey
from fairlead.targets import instance_of
from fairlead_process.json_documents import read_json
from fairlead_process.tasks import beside_the_loop
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events.prompt_questions import Asked, Disputed, PromptQuestions, longest_answer
from fairlead_router.kv_events.prompt_texts import CHAT, COMPLETIONS, MESSAGES, RENDERINGS, questions, token_ids
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import StreamReader
from fairlead_router.protocols.answers_so_far import AnswerSoFar, ResponseSoFar
from fairlead_router.protocols.continuations import Rest, Uncarried, rest, stops, unlike, why_not
from fairlead_router.protocols.dialects import Dialect, error_event
from fairlead_router.protocols.prompts import Document
from fairlead_router.relaying.calls import Call, Calls, CarriedAnswer, Client

MOST_LOSSES = 2
"""Number of lost instances after which the answer of a request is no longer continued. The limit prevents a request
that kills its engines from killing all engines of a pool.
"""
MOST_HAND_OVERS = 16
"""Maximum number of times that draining instances hand one answer over, because its prompt is computed again each time.
"""
REST_REFUSED = "rest-refused"
"""The kind of failure of an engine that refused to continue an answer."""
REFUSED_SECONDS = 600.0
"""After an engine has refused to continue an answer, draining engines of the same pool hand over no answers of the same
protocol for this number of seconds.
"""
HAND_OVER_LOOK_SECONDS = 0.5
"""Seconds between two checks for draining instances."""
LOOK_AGAIN_SECONDS = 5.0
"""Seconds until an answer that could not be handed over is checked again. A check parses the whole request, so it is
not cheap.
"""
TOKENS_SECONDS = 2.0
"""Timeout in seconds for an engine that tokenizes the text so far. The client waits during this time."""

logger = logging.getLogger(__name__)


class _Tokens(msgspec.Struct):
    tokens: list[int]


_TOKENS = msgspec.json.Decoder(_Tokens)


class CarryingOn:
    """Lets other instances continue answers that have broken off. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, now: Callable[[], float]) -> None:
        self._upstream = upstream
        self._questions = PromptQuestions(upstream, now)
        self._now = now
        self._refused: dict[tuple[PoolKey, Dialect], float] = {}
        """By pool and protocol: the time at which an engine last refused to continue an answer."""

    def keep(self, call: Call, pool: Pool) -> list[bytes] | None:
        """Return the list to which the pieces of an answer are appended as the client gets them. None if the pool does
        not continue answers.
        """
        if call.sent is None and pool.table.routing.continue_answers == ANSWERS_CONTINUE:
            call.sent = []
        return call.sent

    # ── when it breaks off ──

    def broke_off(
        self,
        call: Call,
        client: Client,
        pool: Pool,
        ticket: Ticket,
        instance: str,
        reader: StreamReader,
        failure: UpstreamFailure,
        why: str = "",
    ) -> Dispatch | None:
        """Return the dispatch to the instance that continues an answer, which broke off after its client had received a
        part. If no instance can, end the ticket and the client's stream, and return None. `why`: the reason as a text;
        "" = the engine was lost.
        """
        now = self._now()
        if failure.kind != HANDED_OVER:
            pool.engine_failed(instance, failure.kind, now, ticket)
            call.losses += failure.reached
        if failure.kind == REST_REFUSED:
            self._refused[pool.key, call.dialect] = now
        ending = _ending(call, reader, failure, why or f"{instance} was lost: {failure.shown('it')}")
        obstacle = self._obstacle(call, pool, failure, now)
        carried = 0
        dispatch = None
        if obstacle is None:
            document = _document(_as_asked(call) if call.rest is None else call.rest.body) or {}
            carried = self._given(call, ticket)
            dispatch = pool.account.carry_on(ticket, instance, now, carried_tokens=carried, why=failure.kind, unlike=unlike(document))
        call.drop_connection()
        call.awaited_since = call.quiet_since = 0.0
        log = {"pool": str(pool.key), "instance": instance, "request": call.id, "kind": failure.kind, "error": str(failure)}
        if dispatch is not None:
            call.rest = call.rest or CarriedAnswer(call.head, len(call.body), _as_asked(call))
            call.rest.handed_over += failure.kind == HANDED_OVER
            call.rest.ending = ending
            logger.warning("another instance continues an answer", extra={**log, "to": dispatch.instance, "given_tokens": carried})
            return dispatch
        obstacle = obstacle or Uncarried.NO_INSTANCE
        pool.counters.uncarried[obstacle.value] += 1
        pool.account.fail(ticket, now, out_of_time=failure.kind == "deadline")
        logger.warning("engine lost while answering", extra={**log, "not_continued": obstacle.value})
        client.end(ending)
        return None

    def may_hand_over(self, call: Call, pool: Pool) -> bool:
        """Return whether another instance can probably continue the answer, whose engine still works."""
        refused_at = self._refused.get((pool.key, call.dialect))
        if refused_at is not None and self._now() - refused_at < REFUSED_SECONDS:
            return False
        if self._now() < call.stays_until:
            return False
        if self._cannot(call, pool) is None:
            return True
        call.stays_until = self._now() + LOOK_AGAIN_SECONDS
        return False

    def _cannot(self, call: Call, pool: Pool) -> Uncarried | None:
        """Return the reason why no other instance could continue the answer; None if another instance could."""
        if call.kept is None:
            return Uncarried.OFF
        if call.losses >= MOST_LOSSES or (call.rest is not None and call.rest.handed_over >= MOST_HAND_OVERS):
            return Uncarried.LIMIT
        call.kept.settle()
        document = _document(_as_asked(call) if call.rest is None else call.rest.body)
        if document is None:
            return Uncarried.UNREADABLE
        return why_not(document, call.dialect, call.kept, pool.table.engine.type)

    def _obstacle(self, call: Call, pool: Pool, failure: UpstreamFailure, now: float) -> Uncarried | None:
        if failure.kind == "deadline" or call.deadline <= now:
            return Uncarried.OUT_OF_TIME
        if failure.kind == REST_REFUSED:
            return Uncarried.REFUSED
        return self._cannot(call, pool)

    def _given(self, call: Call, ticket: Ticket) -> int:
        kept, stream = call.kept, ticket.stream
        assert kept is not None
        return len(kept.ids) or max(kept.deltas, 0 if stream is None else stream.generated_tokens) if kept.has_content else 0

    # ── asking for the rest ──

    async def prepare(self, call: Call, pool: Pool, dispatch: Dispatch) -> None:
        """Turn the call into the request for the rest of its answer, for the engine of this dispatch. Raises
        UpstreamFailure if this request cannot be made.
        """
        carried, kept = call.rest, call.kept
        assert carried is not None
        assert kept is not None
        body, document = carried.body, _document(carried.body)
        assert document is not None
        prompt, given = await self._tokens(call, pool, dispatch, document, kept)
        made = rest(
            body,
            document,
            call.dialect,
            kept,
            given_tokens=len(given) or kept.deltas,
            exact=bool(given),
            ids=[*prompt, *given] if prompt and given and not pool.divides else (),
            asks_usage=call.asks_usage is None or call.hides_usage,
        )
        if made is None:
            raise UpstreamFailure(REST_REFUSED, "cannot continue the answer: the text so far cannot be appended to the request's prompt")
        carried.rest = made
        self._become(call, carried, made)

    def _become(self, call: Call, carried: CarriedAnswer, made: Rest) -> None:
        length = b"content-length: %d\r\n"
        head = carried.head
        if made.path is not None:
            method, _, others = head.partition(b" ")
            head = b"%b %b %b" % (method, made.path, others.partition(b" ")[2])
        call.head = head.replace(length % carried.length, length % len(made.body), 1)
        call.body, call.document, call.asks_usage = made.body, made.document, None

    async def _tokens(
        self, call: Call, pool: Pool, dispatch: Dispatch, document: Document, kept: AnswerSoFar
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the token ids of the prompt, and the token ids of the text so far; empty if they are unknown.

        The ids of the text are the ids that the first engine reported. If the request has stop strings, or the engine
        reported no ids, the ids come from the next engine's tokenizer.
        """
        if not kept.has_content:
            return (), ()
        path = _PATHS.get(call.dialect) or (CHAT if "messages" in document else COMPLETIONS)
        asked = Asked(
            address=dispatch.address,
            engine_type=pool.table.engine.type,
            model=call.model or pool.table.model,
            path=path,
            document=document,
        )
        made = () if stops(document) else kept.ids
        return await asyncio.gather(self._of_prompt(asked, kept), self._of_text(asked, kept, made))

    async def _of_prompt(self, asked: Asked, kept: AnswerSoFar) -> Sequence[int]:
        known = kept.prompt_ids or token_ids(asked.path, asked.document)
        if known:
            return known
        possible = questions(asked.path, asked.document, None, RENDERINGS[0])
        if not possible:
            return ()
        try:
            async with asyncio.timeout(TOKENS_SECONDS):
                return (await self._questions.answer(asked, possible, first_is_usual=False)).tokens
        except (UpstreamFailure, Disputed, msgspec.MsgspecError, TimeoutError) as problem:
            logger.debug("prompt not tokenized", extra={"address": asked.address, "error": str(problem)})
            return ()

    async def _of_text(self, asked: Asked, kept: AnswerSoFar, made: Sequence[int]) -> Sequence[int]:
        if made:
            return made
        body = orjson.dumps({"model": asked.model, "prompt": kept.text, "add_special_tokens": False})
        try:
            limit = longest_answer(body)
            answer = await self._upstream.fetch(asked.address, "/tokenize", seconds=TOKENS_SECONDS, limit=limit, body=body)
            return (await beside_the_loop(len(answer), read_json, answer, _TOKENS)).tokens
        except (UpstreamFailure, msgspec.MsgspecError) as problem:
            logger.debug("given text not tokenized", extra={"address": asked.address, "error": str(problem)})
            return ()


_PATHS = {Dialect.ANTHROPIC: MESSAGES, Dialect.RESPONSES: "/v1/responses"}


def _as_asked(call: Call) -> bytes:
    """Return the call's body as the client sent it."""
    return call.body if call.asks_usage is None else call.asks_usage.undone(call.body)


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _ending(call: Call, reader: StreamReader, failure: UpstreamFailure, why: str) -> bytes:
    """Return the bytes with which the client's stream ends if the answer is not continued: the engine's own error event
    if there is one, otherwise the router's. If an engine refused to continue, the event has the reason why the answer
    broke off before.
    """
    if call.rest is None and reader.failure is not None:
        return reader.withheld  # empty where the client has had it
    if call.rest is not None and failure.kind == REST_REFUSED:
        return call.rest.ending
    return broken(call, reader, why)


def broken(call: Call, reader: StreamReader, why: str) -> bytes:
    """Return the error event that ends a stream with an incomplete answer."""
    message = f"the answer ended early, {why}"
    sequence = reader.events
    if isinstance(call.kept, ResponseSoFar):
        call.kept.settle()
        sequence = call.kept.sequence
    return error_event(call.dialect, "rejected-upstream-failed", message, mid_event=reader.cut, sequence=sequence)


class HandOvers:
    """Hands the answers of draining instances over to other instances. `now` is the router's clock in Unix seconds."""

    def __init__(self, pools: Pools, calls: Calls, carrying: CarryingOn, now: Callable[[], float]) -> None:
        self._pools = pools
        self._calls = calls
        self._carrying = carrying
        self._now = now
        self._since: dict[tuple[str, str], float] = {}
        """By pool and instance: the time since which this router has seen the instance drain."""

    async def look(self) -> None:
        """Parse the new pieces of long answers, and hand over the answers that must leave a draining instance. Runs
        every HAND_OVER_LOOK_SECONDS.
        """
        now = self._now()
        draining = {
            (str(pool.key), entry.id): pool
            for pool in self._pools.all()
            for entry in pool.table.instances
            if entry.state is InstanceState.DRAINING
        }
        self._since = {place: self._since.get(place, now) for place in draining}
        for call in self._calls.under_way():
            if call.sent and call.kept is not None:
                call.kept.settle_if_large()
            if draining and self._hand_over(call, draining, now):
                await asyncio.sleep(0)  # its request was read, which takes the longer the larger it is

    def _hand_over(self, call: Call, draining: dict[tuple[str, str], Pool], now: float) -> bool:
        """Hand over the answer of a call if it must leave its instance and another instance can continue it. Return
        whether this was checked.
        """
        ticket, connection = call.ticket, call.connection
        if ticket is None or connection is None:
            return False
        dispatch = ticket.verdict
        if not isinstance(dispatch, Dispatch) or not call.quiet_since or call.kept is None:
            return False
        instance = instance_of(dispatch.decode or dispatch.instance)
        for (name, leaving), pool in draining.items():
            if leaving != instance or pool.addresses.get(leaving) != connection.address:
                continue
            waited = now - self._since[name, leaving] >= pool.table.routing.hand_over_after_seconds
            begun = bool(call.kept.pieces) or call.kept.has_content
            if waited and begun and pool.account.can_carry_on(ticket, leaving, now):
                if self._carrying.may_hand_over(call, pool):
                    connection.abort(UpstreamFailure(HANDED_OVER, "drains", at=instance))
                return True
        return False
