"""The text of a request that routing compares: from each protocol's document to the canonical bytes of its prompt.

The same conversation gives the same bytes in every protocol, so that it finds the same cached prefix. An engine judges
its input itself: what cannot be read here adds nothing to the bytes. Only a document without its prompt, or with one of
a type that no engine takes, is refused here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from reprlib import Repr
from typing import Any

from fairlead_router.refusals import BadRequest

Document = dict[str, Any]
PromptReader = Callable[[Document], bytes]
"""A decoded body → prompt bytes. Raises BadRequest naming the field at fault."""

_TEXT_FIELDS = ("text", "content", "thinking", "arguments", "output")
"""Where the parts of a conversation keep their text, in the order an engine's chat template meets it."""

_DEEPEST = 8
"""Deepest nesting of parts that is read: no protocol goes deeper, and a client's nesting must not exhaust the stack."""


_shown = Repr()
"""Writes the beginning of a value: what a client sent may have millions of items, or be nested too deeply to write."""
_shown.maxstring = 60


def bad_field(field: str, value: object, remedy: str) -> BadRequest:
    """A 400 that names field, value and remedy; None means that the field is missing."""
    if value is None:
        return BadRequest(400, "missing_field", f"{field}: is missing; {remedy}", field)
    return BadRequest(400, "invalid_field", f"{field}: {_shown.repr(value)[:60]} cannot be used; {remedy}", field)


def chat_prompt(document: Document) -> bytes:
    """All message texts in order, with nothing between them. The simulated engine caches by the same text."""
    return _joined(_messages("messages", document.get("messages")))


def batch_prompt(document: Document) -> bytes:
    """The conversations of a batch, one after the other."""
    texts: list[str] = []
    for index, conversation in enumerate(_listed("messages", document.get("messages"), "conversations")):
        texts.extend(_messages(f"messages[{index}]", conversation))
    return _joined(texts)


def completion_prompt(document: Document) -> bytes:
    """`prompt`: text, texts or token ids. Embedded prompts (`prompt_embeds`) have no text."""
    if document.get("prompt") is None and document.get("prompt_embeds") is not None:
        return b""
    return _input_bytes("prompt", document.get("prompt"))


def embedding_prompt(document: Document) -> bytes:
    """`input`: text, texts or token ids; or `messages`, as engines take them too."""
    if document.get("input") is None and document.get("messages") is not None:
        return chat_prompt(document)
    return _input_bytes("input", document.get("input"))


def responses_prompt(document: Document) -> bytes:
    """`instructions` as the system's text, then `input`: a text or a list of items."""
    given = document.get("input")
    if given is None:
        raise bad_field("input", given, "give a text or a list of items")
    texts: list[str] = []
    _collect(document.get("instructions"), texts, 0)
    _collect(given, texts, 0)
    return _joined(texts)


def anthropic_prompt(document: Document) -> bytes:
    """`system` (a text or blocks), then the contents of `messages`."""
    messages = _listed("messages", document.get("messages"), "messages")
    texts: list[str] = []
    _collect(document.get("system"), texts, 0)
    for message in messages:
        if isinstance(message, dict):
            _collect(message.get("content"), texts, 0)
    return _joined(texts)


def invocation_prompt(document: Document) -> bytes:
    """The prompt of SageMaker's single path: the document may be a chat, a completion or an embedding."""
    if "messages" in document:
        return chat_prompt(document)
    return completion_prompt(document) if "prompt" in document else embedding_prompt(document)


def no_prompt(document: Document) -> bytes:
    """An empty prompt, for requests that are not routed by their text."""
    return b""


def texts_of(*fields: str) -> PromptReader:
    """A reader that joins the texts of those of these fields that are present."""

    def read(document: Document) -> bytes:
        texts: list[str] = []
        for field in fields:
            _collect(document.get(field), texts, 0)
        return _joined(texts)

    return read


def _joined(texts: list[str]) -> bytes:
    return (texts[0] if len(texts) == 1 else "".join(texts)).encode()


def _listed(field: str, value: object, items: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_field(field, value, f"give a list of {items}")
    return value


def _messages(field: str, messages: object) -> list[str]:
    texts: list[str] = []
    for message in _listed(field, messages, "messages"):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts.extend(_part_texts(content))
    return texts


def _part_texts(parts: list[Any]) -> Iterable[str]:
    """The texts among the parts of a message, each an object or, as vLLM takes it too, the text itself."""
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _collect(value: object, into: list[str], depth: int) -> None:
    if isinstance(value, str):
        into.append(value)
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, list):
        for item in value:
            _collect(item, into, depth + 1)
    elif isinstance(value, dict):
        for field in _TEXT_FIELDS:
            if field in value:
                _collect(value[field], into, depth + 1)


def _input_bytes(field: str, value: object) -> bytes:
    """A string, strings, token ids, lists of token ids or objects with texts → bytes; a token id counts as 4 bytes."""
    if isinstance(value, str):
        return value.encode()
    if value is None:
        raise bad_field(field, value, "give a string, a list of strings or a list of token ids")
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        rows = value if isinstance(value[0], list) else [value]
        with suppress(TypeError, OverflowError):
            return b"".join(array("I", row).tobytes() for row in rows)
    texts: list[str] = []
    _collect(value, texts, 0)
    return _joined(texts)
