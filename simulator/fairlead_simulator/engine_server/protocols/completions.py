"""The handlers of `/v1/completions` and of `/invocations`, SageMaker's path for chats and text completions."""

from typing import Any

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.chat import answer_chat
from fairlead_simulator.engine_server.protocols.chunks import ChunkForm, ChunkShape, StreamOptions, sum_of, usage_document
from fairlead_simulator.engine_server.protocols.lengths import work_of
from fairlead_simulator.engine_server.request_errors import RequestInvalid, not_simulated, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.tokens import ByteTokenizer
from fairlead_simulator.engine_server.work import Run

DEFAULT_MAX_TOKENS = 16
"""The maximum number of answer tokens that the protocol sets if the client sets no maximum."""

_SHAPE = ChunkShape(
    kind="text_completion",
    opening=b"",
    before=b'{"index":0,"text":"',
    after=b'","logprobs":null',
    unfinished=b',"finish_reason":null,"stop_reason":null',
    ids=b'"prompt_token_ids":%b,"token_ids":',
    counts={},
    tells_created_tokens=False,
)


async def serve_completion(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond to one or several prompts, given as text or token ids, with `n` choices for each prompt. A streamed
    response has only one prompt and one choice.
    """
    await answer_completion(instance, exchange, await exchange.document())


async def serve_invocation(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond as for a chat if the body has `messages`, else as for a text completion."""
    document = await exchange.document()
    await (answer_chat if "messages" in document else answer_completion)(instance, exchange, document)


async def answer_completion(instance: ServedInstance, exchange: Exchange, document: Document) -> None:
    """Respond like `serve_completion` to a request whose body was already read."""
    settings = instance.settings
    options = StreamOptions(document)
    fields.check_model(document, settings.model)
    fields.check_sampling(document)
    prompts = prompts_of(document.get("prompt"), "prompt", instance.tokenizer)
    copies = fields.count(document, "n") or 1
    works = [work_of(document, prompt, ("max_tokens",), settings.context_tokens, DEFAULT_MAX_TOKENS, given_tokens=0) for prompt in prompts]
    request_id = instance.new_id("cmpl-")
    if options.stream:
        if len(works) * copies > 1:
            field = "n" if copies > 1 else "prompt"
            raise not_simulated(field, document[field], "streams have one choice")
        await instance.stream(exchange, works[0], ChunkForm(instance, request_id, options, _SHAPE, works[0].prompt))
        return
    runs = await instance.compute(exchange, [work for work in works for _ in range(copies)])
    if runs is not None:
        await exchange.answer_json(_completion(instance, exchange, request_id, runs, copies))


def prompts_of(value: object, field: str, tokenizer: ByteTokenizer) -> list[bytes]:
    """Return the prompts in `value`, which is a text, a list of texts, a list of token ids, or a list of lists of token
    ids. Raises RequestInvalid.
    """
    if value in (None, "", []):
        raise RequestInvalid(f"Either {field} or {field}_embeds must be provided and non-empty. (parameter={field})", field)
    if isinstance(value, str):
        return [value.encode()]
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return [item.encode() for item in value]
        if all(isinstance(item, list) and item for item in value):
            return [tokenizer.prompt(item, f"{field}.{position}") for position, item in enumerate(value)]
        if not any(isinstance(item, str | list) for item in value):
            return [tokenizer.prompt(value, field)]
    raise unsuitable(field, value, "a valid string, a list of strings or lists of token ids")


def _completion(instance: ServedInstance, exchange: Exchange, request_id: str, runs: list[Run], copies: int) -> dict[str, Any]:
    usage = sum_of([run.usage() for run in runs], copies)
    return {
        "id": request_id,
        "object": "text_completion",
        "created": instance.now(),
        "model": instance.settings.model,
        "choices": [
            {
                "index": index,
                "text": run.text(),
                "logprobs": None,
                "finish_reason": run.finish_reason,
                "stop_reason": None,
                "token_ids": None,
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "routed_experts": None,
            }
            for index, run in enumerate(runs)
        ],
        "service_tier": None,
        "system_fingerprint": instance.settings.version,
        "usage": usage_document(usage, None),
        "kv_transfer_params": runs[0].held,
        "ec_transfer_params": None,
        "metrics": None,
        **(runs[0].timing() if exchange.timing else {}),
    }
