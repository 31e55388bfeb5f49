"""The handlers of `/v1/messages`, Anthropic's protocol, and of its token count."""

from typing import Any

import orjson

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.lengths import work_of
from fairlead_simulator.engine_server.protocols.prompts import anthropic_prompt
from fairlead_simulator.engine_server.request_errors import FieldInvalid, missing
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Usage

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


async def serve_message(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with a message, whole or as a stream."""
    document = await exchange.document()
    stream = fields.flag(document, "stream")
    prompt = _prompt(instance, document)
    if document.get("max_tokens") is None:
        raise missing("max_tokens")
    if isinstance(document["max_tokens"], int) and document["max_tokens"] < 1:
        raise FieldInvalid("max_tokens", "Value error, max_tokens must be positive")
    work = work_of(document, prompt, ("max_tokens",), instance.settings.context_tokens)
    message_id = instance.new_id("chatcmpl-")
    if stream:
        await instance.stream(exchange, work, MessageForm(message_id, instance.settings.model))
        return
    runs = await instance.compute(exchange, (work,))
    if runs is None:
        return
    run = runs[0]
    await exchange.answer_json(
        {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": run.text()}],
            "model": instance.settings.model,
            "stop_reason": _STOP_REASONS.get(run.finish_reason),
            "usage": _usage_document(run.usage()),
            **({} if run.held is None else {"kv_transfer_params": run.held}),
            **(run.timing() if exchange.timing else {}),
        }
    )


async def serve_token_count(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the number of prompt tokens of a message request."""
    tokens = instance.tokenizer.count(_prompt(instance, await exchange.document()))
    await exchange.answer_json({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})


def _prompt(instance: ServedInstance, document: Document) -> bytes:
    model = instance.settings.model
    if document.get("model") is None:
        raise missing("model")
    fields.check_model(document, model)
    wish = document.get("tool_choice")
    fields.check_sampling({**document, "tool_choice": wish.get("type") if isinstance(wish, dict) else wish})
    return anthropic_prompt(document.get("system"), document.get("messages"), model)


def _usage_document(usage: Usage) -> dict[str, int]:
    """Return the usage in Anthropic's format. Its `input_tokens` counts only the prompt tokens that were neither in the
    cache nor added to the cache.
    """
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.created_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": usage.created_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }


class MessageForm:
    """The format of a streamed message: the event `message_start`, the events of one text block, `message_delta` with
    the usage, and `message_stop`.
    """

    __slots__ = ("_id", "_model")

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model

    def preface(self) -> bytes:
        return b""

    def opening(self, run: Run) -> bytes:
        message: dict[str, Any] = {"id": self._id, "type": "message", "role": "assistant", "content": [], "model": self._model}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": run.prompt_tokens, "output_tokens": 0}}
        block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0}
        return _event({"type": "message_start", "message": message}) + _event(block)

    def content(self, words: bytes, tokens: int) -> bytes:
        head = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"'
        return head + words + b'"},"index":0}\n\n'

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        delta = {"stop_reason": _STOP_REASONS.get(run.finish_reason), "stop_sequence": None}
        return b"".join(
            (
                self.content(words, 0) if words else b"",
                _event({"type": "content_block_stop", "index": 0}),
                _event({"type": "message_delta", "delta": delta, "usage": _usage_document(run.usage()), **extra}),
                _event({"type": "message_stop"}),
            )
        )


def _event(document: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(document["type"]).encode("ascii"), orjson.dumps(document))
