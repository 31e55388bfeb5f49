"""Functions that read and check the fields of a request.

Every function raises RequestInvalid with the message and the field that vLLM would give. As in vLLM, a field with the
value null counts as absent.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from fairlead_simulator.engine_server.request_errors import FieldInvalid, RequestInvalid, not_simulated, unknown_model, unsuitable

Document = dict[str, Any]

MEDIA_TYPE_REFUSED = "1 validation error: Unsupported Media Type: Only 'application/json' is allowed"


def json_object(body: bytes, content_type: bytes) -> Document:
    """Return the body of a JSON request as an object. Raises RequestInvalid for another content type, and if the body
    is not a JSON object.
    """
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise RequestInvalid(MEDIA_TYPE_REFUSED, kind="Bad Request")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FieldInvalid("", f"JSON decode error: the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise FieldInvalid("", "Input should be a valid dictionary or object to extract fields from")
    return document


def check_model(document: Mapping[str, Any], served: str) -> None:
    """Raise RequestInvalid if the request names another model than `served`. A request that names no model is
    accepted.
    """
    asked = document.get("model")
    if asked is not None and asked != served:
        raise unknown_model(asked, served)


def flag(document: Mapping[str, Any], field: str, default: bool = False) -> bool:
    value = document.get(field)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise unsuitable(field, value, "true or false")


def text(document: Mapping[str, Any], field: str) -> str | None:
    value = document.get(field)
    if value is None or isinstance(value, str):
        return value
    raise unsuitable(field, value, "a valid string")


def count(document: Mapping[str, Any], field: str, least: int = 1) -> int | None:
    """Return the field's value, which must be an integer of at least `least`; None if the field is absent."""
    value = document.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise unsuitable(field, value, "a valid integer")
    if value < least:
        raise RequestInvalid(f"{field} must be at least {least}, got {value}. (parameter={field}, value={value})", field)
    return value


PRIORITY_HEADER = b"x-vllm-priority"
_HEARD = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/invocations"})
_UNTOLD = "/v1/messages"


def priority(document: Mapping[str, Any], headers: Mapping[bytes, bytes], path: str) -> int:
    """Return the priority of a request at `path`; 0 if none is given. On paths that generate answers, an integer in the
    header overrides the field `priority`. Anthropic's protocol has no field for it (vLLM 0.32,
    `generate/base/serving.py`).
    """
    try:
        named = int(headers[PRIORITY_HEADER]) if path in _HEARD else None
    except (KeyError, ValueError):
        named = None
    value = document.get("priority") if path != _UNTOLD else None
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise unsuitable("priority", value, "a valid integer")
    return named if named is not None else value or 0


def choice(document: Mapping[str, Any], field: str, known: tuple[str, ...]) -> str:
    """Return the field's value, which must be one of `known`; the first of `known` if the field is absent."""
    value = document.get(field)
    if value is None:
        return known[0]
    if value not in known:
        raise unsuitable(field, value, " or ".join(repr(word) for word in known))
    return str(value)


_NOT_SIMULATED: Mapping[str, str] = {
    "best_of": "leave it out",
    "echo": "leave it out",
    "logprobs": "leave it out",
    "prompt_embeds": "send the prompt as text or token ids",
    "prompt_logprobs": "leave it out",
    "structured_outputs": "answers are plain words",
    "suffix": "leave it out",
    "top_logprobs": "leave it out",
    "use_beam_search": "leave it out",
}
"""Fields that would change the answer's form or content → the remedy. Sampling parameters are not listed: they are
accepted and ignored, because answers depend only on the prompt.
"""


def check_sampling(document: Mapping[str, Any]) -> None:
    """Raise RequestInvalid for fields that the simulator cannot honour, unless their values have no effect. An answer
    that ignored these fields would be wrong.
    """
    warmth = document.get("temperature")
    if isinstance(warmth, int | float) and warmth < 0:
        raise RequestInvalid(f"temperature must be non-negative, got {warmth}. (parameter=temperature, value={warmth})", "temperature")
    for field, remedy in _NOT_SIMULATED.items():
        if document.get(field):
            raise not_simulated(field, document[field], remedy)
    for field in ("response_format", "text"):
        value = document.get(field)
        form = value.get("format", value) if isinstance(value, dict) else None
        kind = form.get("type", "text") if isinstance(form, dict) else "text"
        if kind != "text":
            raise not_simulated(field, value, "answers are plain words")
    wish = document.get("tool_choice")
    forced = wish.get("type") if isinstance(wish, dict) else wish
    if forced not in (None, "auto", "none"):
        raise not_simulated("tool_choice", wish, 'the simulated model never calls a tool; use "auto" or "none"')
