"""From a request's document to what determines its prompt's tokens, and to the question that an engine answers them by.

Engines tokenize completions of one text, and chats (`POST /tokenize`). Of other requests, and of chats with images or
with fields that only the chat's own path knows, the tokens are not known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairlead_router.kv_events.known_prompts import PromptText

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"

_ASKED = ("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template", "chat_template_kwargs", "tools")
"""Fields besides the texts that a prompt's tokens depend on, and that `/tokenize` takes too."""

_UNASKABLE = (
    "documents",
    "reasoning_effort",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "prompt_embeds",
    "truncate_prompt_tokens",
    "suffix",
)


def token_ids(path: str, document: Mapping[str, Any]) -> Sequence[int] | None:
    """The prompt's token ids, where the client sent them as such."""
    prompt = document.get("prompt") if path == COMPLETIONS else None
    return prompt if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt) else None


def prompt_text(path: str, document: Mapping[str, Any], adapter: str | None = None) -> PromptText | None:
    """What the prompt's tokens, and the blocks of an adapter, depend on; None if an engine cannot be asked for them."""
    if any(document.get(field) is not None for field in _UNASKABLE):
        return None
    salt = document.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        return None
    root = _root(path, document, salt, adapter)
    if path == COMPLETIONS:
        prompt = document.get("prompt")
        if not isinstance(prompt, str):
            return None
        return PromptText(root=root, heads=(b"",), texts=(_encoded(prompt),), cache_salt=salt, adapter=adapter)
    messages = document.get("messages") if path == CHAT else None
    if not isinstance(messages, list) or not messages:
        return None
    heads: list[bytes] = []
    texts: list[bytes] = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        text = _text(message.get("content"))
        if text is None:
            return None
        # Whether a content is a text or a list of texts, a template may tell apart: the shape is in the head.
        shape = "text" if isinstance(message.get("content"), str) else "parts"
        heads.append(shape.encode() + orjson.dumps({key: value for key, value in message.items() if key != "content"}))
        texts.append(_encoded(text))
    return PromptText(root=root, heads=tuple(heads), texts=tuple(texts), cache_salt=salt, adapter=adapter)


def question(path: str, document: Mapping[str, Any], model: str) -> bytes:
    """The body of `POST /tokenize` for a document that `prompt_text` takes."""
    form = "prompt" if path == COMPLETIONS else "messages"
    asked = {field: document[field] for field in _ASKED if document.get(field) is not None}
    return orjson.dumps({"model": model, form: document[form], "return_token_strs": True, **asked})


def detokenizing(tokens: Sequence[int], model: str) -> bytes:
    """The body of `POST /detokenize` that asks SGLang for the text of each token."""
    return orjson.dumps({"model": model, "tokens": [[token] for token in tokens], "skip_special_tokens": False})


def _root(path: str, document: Mapping[str, Any], salt: str | None, adapter: str | None) -> bytes:
    return orjson.dumps([path, salt, adapter, {field: document[field] for field in _ASKED if document.get(field) is not None}])


def _text(content: object) -> str | None:
    """The text of a message's content; None if it is more than text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            return None
        texts.append(part["text"])
    return "".join(texts) if len(texts) == 1 else None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
