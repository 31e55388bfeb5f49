"""The handlers of `/v1/embeddings`, `/pooling` and `/classify`. Prompts are computed like any other prompts, but no
answer is generated.

Embeddings are hashed bags of words. Therefore equal texts have equal embeddings, and texts with words in common have
similar embeddings.
"""

import base64
import struct
from collections.abc import Callable, Sequence
from math import exp, sqrt
from typing import Any

import xxhash

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.completions import prompts_of
from fairlead_simulator.engine_server.protocols.prompts import chat_prompt
from fairlead_simulator.engine_server.request_errors import RequestInvalid, missing
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Work

DIMENSIONS = 256


def embedding(prompt: bytes) -> list[float]:
    """Return the embedding of a prompt as a unit vector. Each word adds or subtracts 1 in the dimension that the word's
    hash selects (feature hashing, Weinberger et al. 2009).
    """
    vector = [0.0] * DIMENSIONS
    for word in prompt.lower().split() or (prompt,):
        number = xxhash.xxh3_64_intdigest(word)
        vector[number % DIMENSIONS] += 1.0 if number & (1 << 63) else -1.0
    length = sqrt(sum(value * value for value in vector))
    if length == 0.0:  # words that cancel out
        vector[0] = length = 1.0
    return [value / length for value in vector]


def cosine(one: list[float], other: list[float]) -> float:
    """Return the cosine of two unit vectors."""
    return sum(a * b for a, b in zip(one, other, strict=True))


_ENCODINGS: tuple[str, ...] = ("float", "base64")


async def serve_embeddings(instance: ServedInstance, exchange: Exchange) -> None:
    document = await exchange.document()
    await _serve_vectors(instance, exchange, document, "embd", "embedding", "embedding")


async def serve_pooling(instance: ServedInstance, exchange: Exchange) -> None:
    document = await exchange.document()
    fields.choice(document, "task", ("embed",))
    await _serve_vectors(instance, exchange, document, "pooling", "pooling", "data")


async def serve_classification(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the probabilities of two classes for each text. The probability of the second class grows with the
    first value of the text's embedding.
    """
    document = await exchange.document()

    def classified(index: int, prompt: bytes) -> dict[str, Any]:
        likely = 1.0 / (1.0 + exp(-16.0 * embedding(prompt)[0]))
        return {"index": index, "label": f"LABEL_{int(likely > 0.5)}", "probs": [1.0 - likely, likely], "num_classes": 2}

    await _serve_each(instance, exchange, document, "classify", classified)


async def pool(instance: ServedInstance, exchange: Exchange, prompts: Sequence[bytes]) -> list[Run] | None:
    """Compute prompts without generating answers. Return a run for each prompt; None if the client has disconnected."""
    if not all(prompts):
        raise RequestInvalid("The decoder prompt cannot be empty")
    return await instance.compute(exchange, [Work(prompt=prompt, max_tokens=1, finish_reason="stop", pooled=True) for prompt in prompts])


def pooled_usage(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the usage document for prompts that were computed without generating answers."""
    tokens = sum(run.prompt_tokens for run in runs)
    return {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


async def _serve_vectors(instance: ServedInstance, exchange: Exchange, document: Document, kind: str, name: str, place: str) -> None:
    encoding = fields.choice(document, "encoding_format", _ENCODINGS)
    dimensions = fields.count(document, "dimensions")
    if dimensions is not None:
        model = instance.settings.model
        raise RequestInvalid(
            f"Model '{model}' does not support Matryoshka embeddings; dimensions must be unset (received dimensions={dimensions})."
        )

    def vector(index: int, prompt: bytes) -> dict[str, Any]:
        values = embedding(prompt)
        told = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *values)).decode("ascii") if encoding == "base64" else values
        return {"index": index, "object": name, place: told}

    await _serve_each(instance, exchange, document, kind, vector)


async def _serve_each(
    instance: ServedInstance, exchange: Exchange, document: Document, kind: str, told: Callable[[int, bytes], dict[str, Any]]
) -> None:
    """Respond with a list that has one entry for each prompt of the request; `told(index, prompt)` returns the
    entry.
    """
    fields.check_model(document, instance.settings.model)
    if document.get("input") == []:
        raise RequestInvalid("You must pass at least one prompt")
    if document.get("input") is None:
        if document.get("messages") is None:
            raise missing("input")
        prompts = [chat_prompt(document["messages"], instance.settings.model)]
    else:
        prompts = [b""] if document["input"] == "" else prompts_of(document["input"], "input", instance.tokenizer)
    request_id = instance.new_id(f"{kind}-")
    runs = await pool(instance, exchange, prompts)
    if runs is None:
        return
    await exchange.answer_json(
        {
            "id": request_id,
            "object": "list",
            "created": instance.now(),
            "model": instance.settings.model,
            "data": [told(index, prompt) for index, prompt in enumerate(prompts)],
            "usage": pooled_usage(runs),
            **(runs[0].timing() if exchange.timing else {}),
        }
    )
