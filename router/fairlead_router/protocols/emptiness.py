"""Checks whether a document with a success status contains an answer, in any protocol. The document may be empty, or
the engine may have given up.

A document without content is an answer if it has the reason why it ended: after `max_tokens: 0`, or for a response that
is made in the background. A document is empty if its field for the answer is empty, or if it has no field that could
contain an answer. A document of unknown form counts as an answer, because engines have formats of their own.

Sources: the response models of vLLM 0.32 (`entrypoints/openai`, `anthropic`, `pooling`), OpenAI's and Anthropic's
references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fairlead_router.protocols.spoken_events import GAVE_UP, Failure, failure_of

_EXPLAINS = frozenset({"code", "detail", "details", "error", "errors", "message", "msg", "param", "title"})
"""Fields that can say why an answer is missing."""

_BESIDE = frozenset(
    {
        "id", "object", "type", "created", "created_at", "model", "role", "status", "usage", "metadata", "system_fingerprint", "service_tier",
        "prompt_logprobs", "prompt_token_ids", "stop_sequence", "stop_reason", "incomplete_details", "parallel_tool_calls", "instructions",
        "temperature", "top_p", "tools", "tool_choice", "text", "truncation", "background", "store", "previous_response_id", "request_id",
        "response_type", "meta", "top_logprobs", "max_output_tokens", "max_tool_calls", "reasoning", "user", "prompt_cache_key",
    }
)  # fmt: skip
"""Fields of documents that are not part of the answer."""

NO_PLACE = _EXPLAINS | _BESIDE
"""Fields that contain no answer. Any other field may contain one."""
_HOLDS = ("content", "output", "data")

_MADE = frozenset({"completed", "incomplete", "in_progress", "queued", "cancelled"})
"""Statuses of a response that has not failed."""

_BESIDE_CHOICE = frozenset({"index", "logprobs", "message", "text", "finish_reason", "stop_reason", "delta", "prompt_logprobs"})


_BEGINS_OBJECT = re.compile(rb'\s*\{\s*(?:"|$)')


def shortfall(document: Any, *, has_input: bool = True) -> Failure | None:
    """Return the reason why a document is not an answer; None if it may be an answer. `has_input`: whether the request
    has input; if not, an empty list of embeddings is an answer.
    """
    if not isinstance(document, dict):
        return None
    if reason := _why_given_up(document):
        return Failure(reason)
    if any(document.get(word) for word in ("code", "detail", "message")) and not _holds_answer(document):
        return failure_of({"message": document.get("message") or document.get("detail"), "code": document.get("code")})
    return Failure("the answer has no content, and no reason for its end") if _is_empty(document, has_input=has_input) else None


def _why_given_up(document: Mapping[str, Any]) -> str:
    """Return the reason why the engine gave the answer up; "" if it did not. If vLLM gives up, a message has no stop
    reason, and a response has the status `cancelled` although it cannot be cancelled.
    """
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("finish_reason") in GAVE_UP:
            return f"it ended with finish_reason {choice['finish_reason']}"
    if document.get("type") == "message" and document.get("role") == "assistant":
        return "it ended without a stop_reason" if document.get("content") and document.get("stop_reason") is None else ""
    return "it was cancelled" if document.get("status") == "cancelled" and document.get("background") is False else ""


def is_cut(body: bytes) -> bool:
    """Return whether bytes that are not valid JSON are the beginning of a JSON object, and not data of another kind."""
    if not _BEGINS_OBJECT.match(body):
        return False
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(body) - 3  # a character that was cut too
    return True


def _is_empty(fields: Mapping[str, Any], *, has_input: bool) -> bool:
    choices = fields.get("choices")
    if choices:
        return isinstance(choices, list) and not any(_says_something(choice) for choice in choices)
    if any(fields.get(place) for place in _HOLDS) or "results" in fields:
        return False
    if isinstance(fields.get("stop_reason"), str) or fields.get("status") in _MADE:
        return False
    if "content" in fields and _was_computed(fields.get("usage")):
        return False
    if fields.get("data") == [] and not has_input:
        return False
    return not _holds_answer(fields)


def _says_something(choice: Any) -> bool:
    """Return whether a choice has content or a finish reason. A choice that is a list of token ids, not an object, has
    content.
    """
    if not isinstance(choice, dict):
        return choice is not None
    if choice.get("finish_reason") or choice.get("stop_reason") is not None or choice.get("text"):
        return True
    message = choice.get("message") or choice.get("delta")
    if isinstance(message, dict) and any(value for name, value in message.items() if name != "role"):
        return True
    return any(value for name, value in choice.items() if name not in _BESIDE_CHOICE)


def _was_computed(usage: Any) -> bool:
    """Return whether the engine counted output tokens, for example for thoughts that it does not send."""
    return isinstance(usage, dict) and bool(usage.get("output_tokens"))


def _holds_answer(fields: Mapping[str, Any]) -> bool:
    """Return whether any field that may contain an answer is not empty."""
    return any(value not in (None, "", [], {}) for name, value in fields.items() if name not in NO_PLACE)
