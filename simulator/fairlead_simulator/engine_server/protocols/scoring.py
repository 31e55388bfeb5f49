"""The handlers of `/score` and `/rerank`, with and without a version in the path. A score is the similarity of two
texts: the cosine of their embeddings. Each text is computed once.

`/generative_scoring` asks a generating model for the probability that its next token is the first of several labels. In
this simulation, the probability grows with the similarity of item and query.
"""

from typing import Any

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.completions import prompts_of
from fairlead_simulator.engine_server.protocols.pooling import cosine, embedding, pool, pooled_usage
from fairlead_simulator.engine_server.request_errors import RequestInvalid, missing, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Work

_PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""Pairs of field names. A request has the two lists of texts that are scored against each other in the fields of one
pair.
"""


async def serve_score(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with scores. One text is scored against each of the other texts, or two equally long lists of texts are
    scored pair by pair.
    """
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    ones, others = _sides(document)
    if len(ones) not in (1, len(others)):
        raise RequestInvalid("Input lengths must be either 1:1, 1:N or N:N")
    request_id = instance.new_id("score-")
    runs = await pool(instance, exchange, [*ones, *others])
    if runs is None:
        return
    vectors = [embedding(text) for text in ones]
    scores = [cosine(vectors[index % len(ones)], embedding(text)) for index, text in enumerate(others)]
    await exchange.answer_json(
        {
            "id": request_id,
            "object": "list",
            "created": instance.now(),
            "model": instance.settings.model,
            "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)],
            "usage": pooled_usage(runs),
        }
    )


async def serve_rerank(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with documents sorted by their similarity to a query, the most similar first."""
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    (query,) = _texts(document, "query", most=1)
    texts = _texts(document, "documents")
    top = fields.count(document, "top_n", least=0) or len(texts)
    request_id = instance.new_id("score-")
    runs = await pool(instance, exchange, [query, *texts])
    if runs is None:
        return
    wanted = embedding(query)
    results: list[dict[str, Any]] = [
        {"index": index, "document": {"text": text.decode(), "multi_modal": None}, "relevance_score": cosine(wanted, embedding(text))}
        for index, text in enumerate(texts)
    ]
    results.sort(key=lambda result: result["relevance_score"], reverse=True)
    usage = pooled_usage(runs)
    await exchange.answer_json(
        {
            "id": request_id,
            "model": instance.settings.model,
            "usage": {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["total_tokens"]},
            "results": results[:top],
        }
    )


async def serve_generative_score(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the score of each item. For each item, one token is generated for the prompt of query and item; the
    item comes first if the request has `item_first`.
    """
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    for field in ("query", "items", "label_token_ids"):
        if document.get(field) is None:
            raise missing(field)
    instance.tokenizer.prompt(_filled(document, "label_token_ids"), "label_token_ids")
    (query,) = prompts_of(document["query"], "query", instance.tokenizer)
    items = prompts_of(_filled(document, "items"), "items", instance.tokenizer)
    first = fields.flag(document, "item_first")
    request_id = instance.new_id("generative-scoring-")
    works = [Work(prompt=item + query if first else query + item, max_tokens=1) for item in items]
    runs = await instance.compute(exchange, works)
    if runs is None:
        return
    wanted = embedding(query)
    scores = [(1.0 + cosine(wanted, embedding(item))) / 2.0 for item in items]
    counts = {"completion_tokens": len(runs), "total_tokens": sum(run.usage().total_tokens for run in runs)}
    await exchange.answer_json(
        {
            "id": request_id,
            "object": "list",
            "created": instance.now(),
            "model": instance.settings.model,
            "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)],
            "usage": pooled_usage(runs) | counts,
        }
    )


def _filled(document: Document, field: str) -> list[Any]:
    value = document[field]
    if not isinstance(value, list):
        raise unsuitable(field, value, "a valid list")
    if not value:
        raise RequestInvalid(f"{field} must contain at least one item.")
    return value


def _sides(document: Document) -> tuple[list[bytes], list[bytes]]:
    for one, other in _PAIRS:
        if document.get(one) is not None and document.get(other) is not None:
            return _texts(document, one), _texts(document, other)
    given = next((one for one, _ in _PAIRS if document.get(one) is not None), None)
    raise missing("queries" if given is None else dict(reversed(_PAIRS))[given])


def _texts(document: Document, field: str, most: int | None = None) -> list[bytes]:
    value = document.get(field)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts) or (most and len(texts) > most):
        raise unsuitable(field, value, "a valid string" if most == 1 else "a valid string or a list of strings")
    return [text.encode() for text in texts]
