"""The handlers of `/v1/chat/completions` and of its batch variant."""

from typing import Any

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.kv_transfers import FIELD as KV_TRANSFER
from fairlead_simulator.engine_server.protocols.chunks import ChunkForm, ChunkShape, StreamOptions, sum_of, usage_document
from fairlead_simulator.engine_server.protocols.lengths import work_of
from fairlead_simulator.engine_server.protocols.prompts import chat_prompt
from fairlead_simulator.engine_server.request_errors import RequestInvalid, not_simulated, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Work

_LIMITS = ("max_completion_tokens", "max_tokens")

_SHAPE = ChunkShape(
    kind="chat.completion.chunk",
    opening=b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}',
    before=b'{"index":0,"delta":{"content":"',
    after=b'"},"logprobs":null',
    unfinished=b',"finish_reason":null',
    ids=b'"token_ids":',
    counts={"completion_tokens_details": None},
    tells_created_tokens=True,
)


async def serve_chat(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond to one conversation with `n` choices; a streamed response has only one choice."""
    await answer_chat(instance, exchange, await exchange.document())


async def answer_chat(instance: ServedInstance, exchange: Exchange, document: Document) -> None:
    """Respond like `serve_chat` to a request whose body was already read."""
    options = StreamOptions(document)
    work = read_chat(instance, document, document.get("messages"), "messages")
    copies = fields.count(document, "n") or 1
    request_id = instance.new_id("chatcmpl-")
    if options.stream:
        if copies > 1:
            raise not_simulated("n", copies, "streams have one choice")
        await instance.stream(exchange, work, ChunkForm(instance, request_id, options, _SHAPE, work.prompt))
        return
    runs = await instance.compute(exchange, [work] * copies)
    if runs is not None:
        await exchange.answer_json(_completion(instance, exchange, request_id, runs, copies))


async def serve_chat_batch(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond to several conversations in one response, with one choice for each conversation."""
    document = await exchange.document()
    conversations = document.get("messages")
    if not isinstance(conversations, list) or not conversations:
        raise unsuitable("messages", conversations, "a list of conversations")
    works = [read_chat(instance, document, messages, f"messages.{position}") for position, messages in enumerate(conversations)]
    request_id = instance.new_id("chatcmpl-")
    runs = await instance.compute(exchange, works)
    if runs is not None:
        answer = _completion(instance, exchange, request_id, runs, 1)
        answer["usage"]["prompt_tokens_details"] = None
        await exchange.answer_json(answer)


def read_chat(instance: ServedInstance, document: Document, messages: object, field: str) -> Work:
    """Return the work for one conversation, `messages`. Other fields of `document` set the answer's length. Raises
    RequestInvalid, naming the messages `field`.
    """
    settings = instance.settings
    fields.check_model(document, settings.model)
    fields.check_sampling(document)
    prompt = chat_prompt(messages, settings.model, field)
    given = _given_tokens(instance, document, messages, prompt)
    ids = (document.get(KV_TRANSFER) or {}).get("prompt_token_ids") if isinstance(document.get(KV_TRANSFER), dict) else None
    if ids is not None:  # the tokens count, not their rendering, as in vLLM
        if not isinstance(ids, list) or not ids:
            raise RequestInvalid("`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.", KV_TRANSFER)
        prompt = instance.tokenizer.prompt(ids, f"{KV_TRANSFER}.prompt_token_ids")
    return work_of(document, prompt, _LIMITS, settings.context_tokens, given_tokens=given)


def _given_tokens(instance: ServedInstance, document: Document, messages: object, prompt: bytes) -> int | None:
    """Return the number of tokens in the final message if the answer must continue this message; None if the answer is
    a new message.
    """
    if not fields.flag(document, "continue_final_message"):
        return None
    if fields.flag(document, "add_generation_prompt", default=True) and "add_generation_prompt" in document:
        raise RequestInvalid("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    assert isinstance(messages, list)
    before = chat_prompt(messages[:-1], instance.settings.model) if len(messages) > 1 else b""
    return instance.tokenizer.count(prompt[len(before) :])


def _completion(instance: ServedInstance, exchange: Exchange, request_id: str, runs: list[Run], copies: int) -> dict[str, Any]:
    usage = sum_of([run.usage() for run in runs], copies)
    return {
        "id": request_id,
        "object": "chat.completion",
        "created": instance.now(),
        "model": instance.settings.model,
        "choices": [_choice(index, run) for index, run in enumerate(runs)],
        "service_tier": None,
        "system_fingerprint": instance.settings.version,
        "usage": usage_document(usage, usage.created_tokens),
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": runs[0].held,
        "ec_transfer_params": None,
        "metrics": None,
        **(runs[0].timing() if exchange.timing else {}),
    }


def _choice(index: int, run: Run) -> dict[str, Any]:
    message = {"role": "assistant", "content": run.text(), "refusal": None, "annotations": None, "audio": None, "function_call": None}
    return {
        "index": index,
        "message": message | {"reasoning": None},
        "logprobs": None,
        "finish_reason": run.finish_reason,
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
