"""Requests to an engine and the shapes of its answers, to compare the simulated engine with a recording of a real vLLM.

`python tests/support/fairlead_testing/builders/engine_shapes.py URL MODEL FILE` records. Run it against `vllm serve`
(with VLLM_ENABLE_RESPONSES_API_STORE=1 and --enable-prompt-tokens-details), once with a model that generates and once
with `--runner pooling --convert embed` and once with `classify`. A run replaces no shape of an earlier run, except the
shapes of paths that the earlier server did not serve.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS

Shape = Any
"""The shape of a JSON document, as JSON with its fields in order.

Values are replaced by the names of their kinds, except the values that clients compare.
"""

_COMPARED = ("type", "object", "role", "status", "finish_reason", "stop_reason", "param", "code", "reason", "index", "sequence_number")

_UNSERVED = {"status": 404, "media_type": "application/json", "answer": {"detail": "text"}}
"""The shape of the answer at a path that a server does not serve."""

_LONG = "hello world " * 2000


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def _generate(kind: str, path: str, **body: Any) -> tuple[str, str, str, dict[str, Any] | None]:
    return kind, "POST", path, body


_CHAT, _TEXT, _MESSAGE, _RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"

CASES: tuple[tuple[str, str, str, dict[str, Any] | None], ...] = (
    ("health", "GET", "/health", None),
    ("health by HEAD", "HEAD", "/health", None),
    ("health by POST", "POST", "/health", None),
    ("ping", "GET", "/ping", None),
    ("ping by POST", "POST", "/ping", None),
    ("version", "GET", "/version", None),
    ("load", "GET", "/load", None),
    ("models", "GET", "/v1/models", None),
    ("unknown path", "GET", "/nothing", None),
    ("wrong method", "GET", _CHAT, None),
    ("sources of cache events", "GET", "/kv_event_sources", None),
    _generate("generative score", "/generative_scoring", query="a", items=["b", "c"], label_token_ids=[300, 301]),
    _generate("generative score of no items", "/generative_scoring", query="a", items=[], label_token_ids=[300]),
    _generate("generative score without labels", "/generative_scoring", query="a", items=["b"]),
    _generate("tokenize", "/tokenize", prompt="Hello wörld", return_token_strs=True),
    _generate("tokenize a chat", "/tokenize", messages=_user("hi")),
    _generate("tokenize nothing", "/tokenize"),
    _generate("detokenize", "/detokenize", tokens=[300, 400]),
    _generate("detokenize below zero", "/detokenize", tokens=[-1]),
    _generate("detokenize nothing", "/detokenize"),
    _generate("completion", _TEXT, prompt="Hello there", max_tokens=4),
    _generate("completion by default", _TEXT, prompt="Hello there", ignore_eos=True),
    _generate("completion of two prompts", _TEXT, prompt=["Hello there", "Bye"], max_tokens=3),
    _generate("completion twice", _TEXT, prompt="Hello there", max_tokens=3, n=2),
    _generate("completion of ids", _TEXT, prompt=[[300, 301], [5, 6]], max_tokens=3),
    _generate("completion of nothing", _TEXT, prompt="", max_tokens=3),
    _generate("completion without prompt", _TEXT, max_tokens=3),
    _generate("completion of no tokens", _TEXT, prompt="a", max_tokens=0),
    _generate("completion too long", _TEXT, prompt=_LONG, max_tokens=2),
    _generate("completion stream", _TEXT, prompt="Hello there", max_tokens=8, stream=True, ignore_eos=True),
    _generate(
        "completion stream with usage",
        _TEXT,
        prompt="Hello there",
        max_tokens=8,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    ),
    _generate("chat", _CHAT, messages=_user("Hello"), max_tokens=4, ignore_eos=True),
    _generate("chat twice", _CHAT, messages=_user("Hello"), max_tokens=2, n=2, ignore_eos=True),
    _generate("chat stream", _CHAT, messages=_user("Hello"), max_tokens=8, stream=True, ignore_eos=True),
    _generate(
        "chat stream with usage",
        _CHAT,
        messages=_user("Hello"),
        max_tokens=8,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True},
    ),
    _generate(
        "chat stream with all usage",
        _CHAT,
        messages=_user("Hello"),
        max_tokens=8,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    ),
    _generate("chat with options but no stream", _CHAT, messages=_user("Hello"), max_tokens=3, stream_options={"include_usage": True}),
    _generate("chat with another model", _CHAT, model="nope", messages=_user("Hello")),
    _generate("chat without messages", _CHAT),
    _generate("chat of no messages", _CHAT, messages=[]),
    _generate("chat of a list", _CHAT, messages=_user("a"), max_tokens="x"),
    _generate("chat of no tokens", _CHAT, messages=_user("a"), max_tokens=0),
    _generate("chat below zero", _CHAT, messages=_user("a"), max_tokens=1, temperature=-1),
    _generate("chat too long", _CHAT, messages=_user(_LONG), max_tokens=2),
    _generate("chat with too much asked", _CHAT, messages=_user("hello"), max_tokens=5000),
    _generate("batch", "/v1/chat/completions/batch", messages=[_user("Hello"), _user("Bye")], max_tokens=3, ignore_eos=True),
    _generate("batch of one chat", "/v1/chat/completions/batch", messages=_user("Hello"), max_tokens=3),
    _generate("invocation", "/invocations", messages=_user("Hello"), max_tokens=2, ignore_eos=True),
    _generate("response", _RESPONSE, input="Hello", max_output_tokens=4, instructions="Be kind", ignore_eos=True),
    _generate("response stream", _RESPONSE, input=_user("Hello"), max_output_tokens=8, stream=True, ignore_eos=True),
    _generate("response after a lost one", _RESPONSE, input="Bye", previous_response_id="resp_x"),
    _generate("response in the background unkept", _RESPONSE, input="Hello", background=True, store=False),
    _generate("response in the background", _RESPONSE, input="Hello", background=True, max_output_tokens=2),
    _generate("response without input", _RESPONSE),
    _generate("response too long", _RESPONSE, input=_LONG, max_output_tokens=2),
    _generate("response of another model", _RESPONSE, model="nope", input="a"),
    ("lost response", "GET", "/v1/responses/resp_x", None),
    ("cancel a lost response", "POST", "/v1/responses/resp_x/cancel", None),
    ("delete a response", "DELETE", "/v1/responses/resp_x", None),
    _generate("message", _MESSAGE, messages=_user("Hello"), system="Be kind", max_tokens=4),
    _generate("message stream", _MESSAGE, messages=_user("Hello"), max_tokens=8, stream=True),
    _generate("message count", "/v1/messages/count_tokens", messages=_user("Hello"), system="Be kind"),
    _generate("message count of another model", "/v1/messages/count_tokens", model="nope", messages=_user("Hello")),
    _generate("message without length", _MESSAGE, messages=_user("Hello")),
    _generate("message of no tokens", _MESSAGE, messages=_user("Hello"), max_tokens=0),
    _generate("message of another model", _MESSAGE, model="nope", messages=_user("Hello"), max_tokens=2),
    _generate("message too long", _MESSAGE, messages=_user(_LONG), max_tokens=2),
    _generate("message of no messages", _MESSAGE, messages=[], max_tokens=2),
    _generate("embedding", "/v1/embeddings", input="Hello there"),
    _generate("embeddings in base64", "/v1/embeddings", input=["Hello there", "Bye"], encoding_format="base64"),
    _generate("embedding of ids", "/v1/embeddings", input=[300, 301]),
    _generate("embedding of few dimensions", "/v1/embeddings", input="a", dimensions=8),
    _generate("embedding without input", "/v1/embeddings"),
    _generate("embedding of nothing", "/v1/embeddings", input=""),
    _generate("embedding of no texts", "/v1/embeddings", input=[]),
    _generate("embedding too long", "/v1/embeddings", input=_LONG),
    _generate("pooling", "/pooling", input="Hello there"),
    _generate("rerank", "/rerank", query="Hello", documents=["Hello there", "Bye"]),
    _generate("rerank v1", "/v1/rerank", query="Hello", documents=["Hello there", "Bye"], top_n=1),
    _generate("rerank v2", "/v2/rerank", query="Hello", documents=["Hello there", "Bye"]),
    _generate("rerank without documents", "/rerank", query="Hello"),
    _generate("score", "/score", text_1="Hello", text_2=["Hello there", "Bye"]),
    _generate("score v1", "/v1/score", queries=["a", "b"], documents=["c", "d"]),
    _generate("score of unequal sides", "/score", queries=["a", "b"], documents=["c", "d", "e"]),
    _generate("score of one side", "/score", queries=["a", "b"]),
    _generate("classification", "/classify", input=["Hello there", "Bye"]),
)
"""Name, method, path and body of each request; the body is without its model."""


def shape_of(client: httpx.Client, model: str, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Shape]:
    """Send a request and return status, media type, and the shape of the answer: of its document or of its stream's
    events.
    """
    response = client.request(method, path, json=None if body is None else {"model": model, **body})
    media_type = response.headers.get("content-type")
    if media_type is not None and media_type.startswith("text/event-stream"):
        answer: Shape = _events(response.text)
    else:
        answer = shape_of_document(response.json()) if response.content else None
    return {"status": response.status_code, "media_type": media_type, "answer": answer}


def shape_of_document(value: Any, name: str = "") -> Shape:
    """Return the shape of a JSON value. `name` is the field that has the value; empty for a whole document."""
    if isinstance(value, dict):
        return {field: shape_of_document(inner, field) for field, inner in value.items()}
    if isinstance(value, list):
        shapes = [shape_of_document(inner) for inner in value]
        return shapes[:1] if shapes and all(shape == shapes[0] for shape in shapes) else shapes
    if name in _COMPARED and value is not None:
        return value
    if value is None:
        return None
    if isinstance(value, bool):
        return "flag"
    return "text" if isinstance(value, str) else "number"


def _events(text: str) -> list[Shape]:
    """Return the shapes of a stream's events in order. Of neighbours with equal shapes only the first is returned."""
    shapes: list[Shape] = []
    for event in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in event.split("\n"))
        data = lines["data"]
        shape = data if data == "[DONE]" else shape_of_document(json.loads(data))
        if isinstance(shape, dict):
            shape.pop("sequence_number", None)
        told = {"event": lines.get("event"), "data": shape}
        if not shapes or shapes[-1] != told:
            shapes.append(told)
    return shapes


def record(url: str, model: str, file: Path) -> None:
    """Add the shapes of this server's answers to the file, unless the file has a shape of the case from a served
    path.
    """
    recorded: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        for name, method, path, body in CASES:
            shape = shape_of(client, model, method, path, body)
            if name not in recorded or recorded[name] == _UNSERVED:
                recorded[name] = shape
    file.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(shape)}" for name, shape in recorded.items()) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
