"""Turns the document of a request into the texts that determine its prompt's tokens, and into a question: the body of a
request by which an engine tokenizes these texts.

Engines tokenize completions of one text, and chats (`POST /tokenize`). Anthropic's messages and Responses become chats
by vLLM's own rules (`conversations`), checked against vLLM 0.32: `entrypoints/anthropic/serving.py`,
`entrypoints/openai/responses/`, `renderers/online_renderer.py`. There is no question for a prompt with parts that
`/tokenize` does not accept, such as images, a stored conversation, or fields that only the request's own path has.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from fairlead.values import value
from fairlead_router.kv_events.known_prompts import PromptText
from fairlead_router.protocols.conversations import BILLING, chat_of_messages, chat_of_response, without_billing

COMPLETIONS, CHAT, MESSAGES, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"

Fields = dict[str, Any]

_ASKED = ("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template", "chat_template_kwargs", "tools")
"""Fields, besides the texts, that determine a prompt's tokens and that `/tokenize` accepts too."""

_UNASKABLE: Mapping[str, tuple[str, ...]] = {
    COMPLETIONS: ("prompt_embeds", "truncate_prompt_tokens", "suffix"),
    CHAT: ("mm_processor_kwargs", "media_io_kwargs", "prompt_embeds", "truncate_prompt_tokens"),
    MESSAGES: (),
    RESPONSES: ("previous_response_id", "conversation", "prompt", "previous_input_messages", "mm_processor_kwargs", "media_io_kwargs"),
}
"""By path: fields that change a prompt's tokens and that `/tokenize` does not accept. There is no question for a
request with such a field.
"""

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


@value
class Rendering:
    """The choices in vLLM's conversion of messages that depend on the model's chat template. A request does not show
    them.
    """

    merge_system: bool = False
    """Whether later system messages are merged into the first message, because the template allows a system message
    only at the beginning.
    """
    disabled_effort: str = "none"
    """The reasoning effort that replaces `thinking: {"type": "disabled"}`: `low` if the template does not accept
    `none`.
    """


RENDERINGS = tuple(Rendering(merge_system=merge, disabled_effort=effort) for effort in ("none", "low") for merge in (False, True))


@value
class Question:
    """A request to tokenize a prompt. `prompt`: the prompt's texts. `fields`: the fields of the body of `POST
    /tokenize`.
    """

    prompt: PromptText
    fields: Mapping[str, Any]
    rendering: Rendering

    def body(self, model: str) -> bytes:
        """Return the body of `POST /tokenize` for an engine that serves `model`."""
        return orjson.dumps({"model": model, "return_token_strs": True, **self.fields})


def has_billing_line(document: Mapping[str, Any]) -> bool:
    """Return whether a chat begins with the billing line of Claude Code, which vLLM drops and other engines keep."""
    messages = document.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    content = first.get("content") if isinstance(first, dict) else None
    return _unbilled(content) != content


def token_ids(path: str, document: Mapping[str, Any]) -> Sequence[int] | None:
    """Return the prompt's token ids if the client sent token ids instead of text; None otherwise."""
    prompt = document.get("prompt") if path == COMPLETIONS else None
    return prompt if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt) else None


def question(path: str, document: Mapping[str, Any], adapter: str | None = None, rendering: Rendering | None = None) -> Question | None:
    """Return the question by which an engine tokenizes the prompt of a request, for the model or an `adapter`; None if
    `/tokenize` cannot express the prompt.
    """
    unaskable, salt = _UNASKABLE.get(path), document.get("cache_salt")
    if unaskable is None or any(document.get(field) is not None for field in unaskable) or not (salt is None or isinstance(salt, str)):
        return None
    rendering = rendering or RENDERINGS[0]
    try:
        fields = _completion(document) if path == COMPLETIONS else _chat(path, document, rendering)
        if fields is None:
            return None
        heads, texts = _pieces(fields)
        root = orjson.dumps([path == COMPLETIONS, salt, adapter, {field: given for field, given in fields.items() if field in _ASKED}])
    except (TypeError, ValueError):
        return None  # what JSON's writer does not know: a large integer, or a value that nests too deeply
    tool_bytes = len(root) if fields.get("tools") else 0  # the few bytes beside them do not count
    text = PromptText(root=root, heads=heads, texts=texts, cache_salt=salt, adapter=adapter, tool_bytes=tool_bytes)
    return Question(prompt=text, fields=fields, rendering=rendering)


def questions(path: str, document: Mapping[str, Any], adapter: str | None, first: Rendering) -> list[Question]:
    """Return the questions for a request, one for each rendering that an engine may use, without duplicates. The
    question for the rendering `first` comes first.
    """
    made: list[Question] = []
    for rendering in sorted(RENDERINGS, key=lambda rendering: rendering != first) if path == MESSAGES else (first,):
        asked = question(path, document, adapter, rendering)
        if asked is not None and all(asked.fields != other.fields for other in made):
            made.append(asked)
    return made


def detokenizing(tokens: Sequence[int], model: str) -> bytes:
    """Return the body of the request `POST /detokenize` by which SGLang returns the text of each token."""
    return orjson.dumps({"model": model, "tokens": [[token] for token in tokens], "skip_special_tokens": False})


def _completion(document: Mapping[str, Any]) -> Fields | None:
    prompt = document.get("prompt")
    return {"prompt": prompt, **_given(document)} if isinstance(prompt, str) else None


def _given(document: Mapping[str, Any]) -> Fields:
    return {field: document[field] for field in _ASKED if document.get(field) is not None}


def _chat(path: str, document: Mapping[str, Any], rendering: Rendering) -> Fields | None:
    chat = _as_chat(path, document, rendering)
    given = chat.get("messages") if chat is not None else None
    if chat is None or not isinstance(given, list) or not given:
        return None
    messages = [_message(message) for message in given]
    return None if None in messages else {**_given(chat), **_template_arguments(chat), "messages": messages}


def _as_chat(path: str, document: Mapping[str, Any], rendering: Rendering) -> Mapping[str, Any] | None:
    if path == MESSAGES:
        chat = chat_of_messages(document, merge_system=rendering.merge_system, json_arguments=True)
        if chat.get("reasoning_effort") == "none":
            chat["reasoning_effort"] = rendering.disabled_effort
        return chat
    if path == RESPONSES:
        # Unlike a chat's, a response's template may be followed by the tokenizer's own special tokens.
        return None if _is_unknown_response(document) else {**chat_of_response(document), "add_special_tokens": True}
    return document


def _is_unknown_response(document: Mapping[str, Any]) -> bool:
    """Return whether the prompt of a Responses request cannot be known, because the engine may cut off part of the
    input, or because the input has encrypted thoughts.
    """
    items = document.get("input")
    hidden = isinstance(items, list) and any(isinstance(item, dict) and item.get("encrypted_content") for item in items)
    return hidden or document.get("truncation") not in (None, "disabled")


def _template_arguments(chat: Mapping[str, Any]) -> Fields:
    """Return the arguments of the template. Fields of the chat itself take precedence, as in vLLM."""
    given = chat.get("chat_template_kwargs")
    arguments = dict(given) if isinstance(given, dict) else {}
    effort = chat.get("reasoning_effort")
    if effort is not None:
        arguments = {"enable_thinking": effort != "none", **arguments, "reasoning_effort": effort}
    if chat.get("documents") is not None:
        arguments["documents"] = chat["documents"]
    return {"chat_template_kwargs": arguments} if arguments else {}


def _message(message: object) -> Fields | None:
    """Return a message in the form that `/tokenize` accepts; None if it has parts that are not text."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    made = {field: given for field, given in message.items() if given is not None and field not in _NOT_RENDERED}
    if message["role"] == "system":
        made["content"] = content = _unbilled(content)
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        if None in parts:
            return None
        made["content"] = parts[0]["text"] if len(parts) == 1 and parts[0] is not None else parts
    elif not isinstance(content, str | None):
        return None
    thoughts = message.get("reasoning_content")  # the older name, which a chat takes and /tokenize does not
    return {"reasoning": thoughts, **made} if isinstance(thoughts, str) else made


def _unbilled(content: object) -> object:
    """Return the content of a system message as vLLM renders it: without Claude Code's billing line, which changes with
    every request.
    """
    if isinstance(content, str):
        return without_billing(content)
    if not isinstance(content, list):
        return content
    kept: list[object] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str) or not text.startswith(BILLING):
            kept.append(part)
        elif rest := without_billing(text):
            kept.append({"type": "text", "text": rest})
    return kept


_NOT_RENDERED = frozenset({"id", "status", "type", "cache_control", "phase"})
"""Fields of a message besides role and content that no template renders. Clients and the Responses protocol add them.
"""


def _part(part: object) -> dict[str, str] | None:
    text = part.get("text") if isinstance(part, dict) and part.get("type") in _TEXT_PARTS else part
    return {"type": "text", "text": text} if isinstance(text, str) else None


def _pieces(fields: Fields) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the heads and the texts of a prompt; each text has one head."""
    if "prompt" in fields:
        return (b"",), (_encoded(fields["prompt"]),)
    messages = fields["messages"]
    last_user = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=-1)
    heads: list[bytes] = []
    texts: list[bytes] = []
    for place, message in enumerate(messages):
        head = _head(message, after_user=place > last_user)
        for text in _texts(message.get("content")):
            heads.append(head)
            texts.append(_encoded(text))
            head = b"+"
    return tuple(heads), tuple(texts)


def _head(message: Mapping[str, Any], *, after_user: bool) -> bytes:
    """Return all fields of a message except its content, as bytes. `after_user`: whether the message follows the last
    user's message. If it does, and has thoughts, the bytes are marked: templates drop its thoughts once another user's
    message follows, which changes its tokens.
    """
    fields = {field: given for field, given in message.items() if field != "content"}
    thinks = message["role"] == "assistant" and ("reasoning" in message or "</think>" in str(message.get("content")))
    return (b"!" if thinks and after_user else b"") + orjson.dumps(fields)


def _texts(content: object) -> Iterable[str]:
    """Return the texts of a message's content: the content itself, or the texts of its parts. A content that is a text
    and a content of one part have the same tokens, because vLLM converts the first form to the second.
    """
    if isinstance(content, list) and content:
        return [part["text"] for part in content]
    return [content if isinstance(content, str) else ""]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
