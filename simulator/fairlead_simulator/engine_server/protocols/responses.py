"""The handlers of `/v1/responses`. A response is created as a whole, as a stream or in the background. While the
instance stores a response, clients can retrieve, continue and cancel it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.lengths import work_of
from fairlead_simulator.engine_server.protocols.prompts import responses_prompt
from fairlead_simulator.engine_server.protocols.stored_responses import ResponseStore, StoredResponse
from fairlead_simulator.engine_server.request_errors import RequestInvalid, not_simulated
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Usage, Work


class ResponseForm:
    """The format of a streamed response of the responses API: one message with one text part.

    `finish` returns the response document at the end. The first two events say only that the request was accepted, so
    they are sent before the engine has produced a token.
    """

    def __init__(self, document: dict[str, Any], message_id: str, finish: Callable[[Run], dict[str, Any]]) -> None:
        self._document = document
        self._message_id = message_id
        self._finish = finish
        self._sequence = 0
        self._place = {"content_index": 0, "item_id": message_id, "output_index": 0}

    def preface(self) -> bytes:
        return self._event("created", {"response": self._document}) + self._event("in_progress", {"response": self._document})

    def opening(self, run: Run) -> bytes:
        item = self._message([], "in_progress")
        part: dict[str, Any] = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        added = self._event("output_item.added", {"item": item, "output_index": 0})
        return added + self._event("content_part.added", {**self._place, "part": part})

    def content(self, words: bytes, tokens: int) -> bytes:
        return self._event("output_text.delta", {**self._place, "delta": words.decode("ascii"), "logprobs": []})

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        text = run.text()
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        return b"".join(
            (
                self.content(words, 0) if words else b"",
                self._event("output_text.done", {**self._place, "logprobs": [], "text": text}),
                self._event("content_part.done", {**self._place, "part": part}),
                self._event("output_item.done", {"item": self._message([part], "completed"), "output_index": 0}),
                self._event("completed", {"response": self._finish(run), **extra}),
            )
        )

    def _message(self, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
        return {"id": self._message_id, "content": content, "role": "assistant", "status": status, "type": "message", "phase": None}

    def _event(self, kind: str, document: dict[str, Any]) -> bytes:
        told = dict(sorted({**document, "sequence_number": self._sequence, "type": f"response.{kind}"}.items()))
        self._sequence += 1
        return b"event: response.%b\ndata: %b\n\n" % (kind.encode("ascii"), orjson.dumps(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request to the responses API. `conversation` is the text of the conversation so far without the `instructions`,
    because these apply to one turn only.
    """

    document: dict[str, Any]
    work: Work
    conversation: bytes
    store: bool
    background: bool
    stream: bool


class Responses:
    """The handlers of the responses API, and the store of its responses.

    If `store` is None, nothing is stored, as in a vLLM that was started without a response store.
    """

    def __init__(self, store: ResponseStore | None) -> None:
        self._store = store

    async def create(self, instance: ServedInstance, exchange: Exchange) -> None:
        asked = self._read(instance, await exchange.document())
        if asked.background:
            await exchange.answer_json(self._begin_in_background(instance, exchange, asked))
            return
        message_id = instance.new_id("msg_")
        if asked.stream:
            form = ResponseForm(asked.document, message_id, lambda run: self._finish(asked, message_id, run))
            await instance.stream(exchange, asked.work, form)
            return
        runs = await instance.compute(exchange, (asked.work,))
        if runs is not None:
            document = self._finish(asked, message_id, runs[0])
            await exchange.answer_json(document | (runs[0].timing() if exchange.timing else {}))

    async def retrieve(self, _: ServedInstance, exchange: Exchange) -> None:
        if exchange.query("stream") not in (None, "false", "0"):
            raise not_simulated("stream", exchange.query("stream"), "retrieve the response without it")
        await exchange.answer_json(self._kept().find(exchange.name).document)

    async def cancel(self, _: ServedInstance, exchange: Exchange) -> None:
        await exchange.answer_json(self._kept().cancel(exchange.name).document)

    def _kept(self) -> ResponseStore:
        return self._store if self._store is not None else ResponseStore()

    def _read(self, instance: ServedInstance, document: Document) -> _Asked:
        settings = instance.settings
        fields.check_model(document, settings.model)
        fields.check_sampling(document)
        conversation = responses_prompt(document.get("input"), settings.model)
        previous = fields.text(document, "previous_response_id")
        if previous is not None:
            conversation = self._kept().find(previous).conversation + conversation
        prompt = (fields.text(document, "instructions") or "").encode() + conversation
        store, background = fields.flag(document, "store", default=True), fields.flag(document, "background")
        stream = fields.flag(document, "stream")
        if background and not store:
            raise RequestInvalid("background can only be used when `store` is true (parameter=background)", "background")
        if background and self._store is None:
            message = (
                "This engine does not support `store=True` and therefore does not support the background mode. Start "
                "it with --responses-store."
            )
            raise RequestInvalid(message, "background", kind="invalid_request_error")
        if background and stream:
            raise not_simulated("stream", True, "create in the background without a stream, then retrieve")
        given = _given_tokens(instance, document.get("input"))
        work = work_of(document, prompt, ("max_output_tokens",), settings.context_tokens, given_tokens=given)
        return _Asked(
            document=_response_document(instance, document, work, background),
            work=work,
            conversation=conversation,
            store=store and self._store is not None,
            background=background,
            stream=stream,
        )

    def _begin_in_background(self, instance: ServedInstance, exchange: Exchange, asked: _Asked) -> dict[str, Any]:
        document = asked.document | {"status": "queued"}
        run = instance.submit(instance.rank_of(exchange), asked.work, priority=exchange.priority)
        stored = StoredResponse(document=document, conversation=asked.conversation, ticket=run.ticket)
        message_id = instance.new_id("msg_")

        async def finish() -> None:
            await run.ticket.end()
            if not run.ticket.gone:
                stored.document = _completed(document, message_id, run)
                stored.conversation = _continued(asked, run)

        stored.task = asyncio.ensure_future(finish())
        self._kept().keep(stored)
        return document

    def _finish(self, asked: _Asked, message_id: str, run: Run) -> dict[str, Any]:
        """Return the document of a finished response. If the response is to be stored, it is stored first, so that the
        client can retrieve it as soon as it has received it.
        """
        document = _completed(asked.document, message_id, run)
        if asked.store:
            self._kept().keep(StoredResponse(document=document, conversation=_continued(asked, run)))
        return document


def _given_tokens(instance: ServedInstance, given: object) -> int | None:
    """Return the number of tokens in the last item of the input if it is an unfinished message, which the answer
    continues; None otherwise.
    """
    last = given[-1] if isinstance(given, list) and given else None
    if not isinstance(last, dict) or last.get("type", "message") != "message" or last.get("status") not in ("in_progress", "incomplete"):
        return None
    return instance.tokenizer.count(responses_prompt([last], instance.settings.model))


def _continued(asked: _Asked, run: Run) -> bytes:
    return asked.conversation + run.text().encode("ascii")


def _completed(document: dict[str, Any], message_id: str, run: Run) -> dict[str, Any]:
    limited = run.finish_reason == "length"
    text: dict[str, Any] = {"annotations": [], "text": run.text(), "type": "output_text", "logprobs": None}
    message = {"id": message_id, "content": [text], "role": "assistant", "status": "completed", "type": "message", "phase": None}
    return document | {
        "incomplete_details": {"reason": "max_output_tokens"} if limited else None,
        "status": "incomplete" if limited else "completed",
        "output": [message],
        "usage": _usage_document(run.usage()),
        "kv_transfer_params": run.held,
    }


def _response_document(instance: ServedInstance, asked: Document, work: Work, background: bool) -> dict[str, Any]:
    """Return the document of a response that has not begun. As in vLLM, it repeats the request's fields."""
    return {
        "id": instance.new_id("resp_"),
        "created_at": instance.now(),
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "metadata": asked.get("metadata"),
        "model": instance.settings.model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": fields.flag(asked, "parallel_tool_calls", default=True),
        "temperature": asked.get("temperature") or 1.0,
        "tool_choice": asked.get("tool_choice") or ("auto" if asked.get("tools") else "none"),
        "tools": asked.get("tools") or [],
        "top_p": asked.get("top_p") or 1.0,
        "background": background,
        "max_output_tokens": work.max_tokens,
        "max_tool_calls": asked.get("max_tool_calls"),
        "previous_response_id": asked.get("previous_response_id"),
        "prompt": None,
        "reasoning": asked.get("reasoning"),
        "service_tier": asked.get("service_tier") or "auto",
        "status": "in_progress",
        "text": asked.get("text"),
        "top_logprobs": None,
        "truncation": asked.get("truncation") or "disabled",
        "usage": None,
        "user": asked.get("user"),
        "presence_penalty": asked.get("presence_penalty") or 0.0,
        "frequency_penalty": asked.get("frequency_penalty") or 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _usage_document(usage: Usage) -> dict[str, Any]:
    cached = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.created_tokens}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": cached | {"input_tokens_per_turn": [], "cached_tokens_per_turn": []},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage.total_tokens,
    }
