"""Makes the canonical prompt of a request: bytes for routing, which compares and counts them, from a document of any
protocol.

The bytes represent everything that changes the tokens that an engine computes, and nothing else. `prompt_fields` has
the effect of every field. The same conversation has the same bytes in every protocol, so that it finds the same cached
prefix. An engine validates its input itself, so unreadable parts add no bytes. Only a document whose prompt is missing,
or has a type that no engine accepts, is refused here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from reprlib import Repr
from typing import Any

from fairlead_router.protocols.canonical_json import canonical_json
from fairlead_router.protocols.conversations import chat_of_messages, chat_of_response
from fairlead_router.protocols.media import medium
from fairlead_router.protocols.prompt_fields import ROOTS
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.rendered_chats import MEDIA, Pieces, mark, render_chat

Document = dict[str, Any]


class Prompt:
    """A canonical prompt. Two prompts with the same bytes are equal, even if the bytes are divided into different
    pieces.

    `pieces`: its bytes, in several pieces, so that long texts need not be copied. `kinds`: its contents besides plain
    text (`TOOLS`, `MEDIA`). `root`: values that add no bytes but change all tokens, such as a salt.
    """

    __slots__ = ("kinds", "pieces", "root")

    def __init__(self, pieces: Sequence[bytes], kinds: int = 0, root: bytes = b"") -> None:
        self.pieces = pieces
        self.kinds = kinds
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and (self.text, self.kinds, self.root) == (other.text, other.kinds, other.root)

    def __hash__(self) -> int:
        return hash((self.text, self.kinds, self.root))

    def __repr__(self) -> str:
        return f"Prompt({self.text!r}, {self.kinds}, {self.root!r})"

    @property
    def text(self) -> bytes:
        """The bytes of the prompt in one piece."""
        return b"".join(self.pieces)

    @property
    def size(self) -> int:
        """Number of bytes of the prompt."""
        return sum(map(len, self.pieces))


PromptReader = Callable[[Document], Prompt]
"""A function that makes the prompt of a decoded body. Raises BadRequest, which names the invalid field."""

_TEXT_FIELDS = ("text", "content", "thinking", "arguments", "output")
"""Fields with text, in the documents of requests for reranking or scoring."""

_DEEPEST = 8
"""Maximum depth to which nested content parts are read. No protocol nests deeper, and a client must not exhaust the
stack.
"""


_shown = Repr()
"""Formats the beginning of a value, because a client's value may have millions of items or be nested too deeply."""
_shown.maxstring = 60


_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})


def truth(value: object) -> bool | None:
    """Return a boolean, converted as engines do (pydantic's lax mode): 0, 1 and words such as "true" are accepted too.
    None for a value that engines refuse.
    """
    if isinstance(value, bool) or value is None:
        return bool(value)
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    return value == 1 if isinstance(value, int | float) and value in (0, 1) else None


def bad_field(field: str, value: object, remedy: str) -> BadRequest:
    """Return a 400 that names the field, its value and a remedy. If `value` is None, the field is missing."""
    if value is None:
        return BadRequest(400, "missing_field", f"{field}: is missing; {remedy}", field)
    return BadRequest(400, "invalid_field", f"{field}: {_shown.repr(value)[:60]} cannot be used; {remedy}", field)


def chat_prompt(document: Document) -> Prompt:
    """Return the prompt of a chat: everything that a template renders before the messages, and then the messages (see
    `rendered_chats`).
    """
    messages = _listed("messages", document.get("messages"), "messages")
    if document.get("input_ids"):
        return Prompt((_input_bytes("input_ids", document["input_ids"]),), 0, _root(document))
    into = Pieces()
    kinds = render_chat(document, messages, into)
    return Prompt(into, kinds, _root(document))


def batch_prompt(document: Document) -> Prompt:
    """Return the prompt of a batch, which consists of all its conversations in order."""
    into = Pieces()
    kinds = 0
    for index, conversation in enumerate(_listed("messages", document.get("messages"), "conversations")):
        if index:
            into.append(_NEXT)
        kinds |= render_chat(document, _listed(f"messages[{index}]", conversation, "messages"), into)
    return Prompt(into, kinds, _root(document))


def completion_prompt(document: Document) -> Prompt:
    """Return the prompt of a completion: `prompt` (text, texts or token ids), and then `suffix`, the text that shall
    follow the answer. Prompt embeddings count as media.
    """
    embeds = document.get("prompt_embeds")
    if document.get("prompt") is None and embeds is not None:
        return Prompt((_embedded(embeds),), MEDIA, _root(document))
    text = _input_bytes("prompt", document.get("prompt"))
    if isinstance(suffix := document.get("suffix"), str) and suffix:
        text += _SUFFIX + suffix.encode()
    if embeds:
        return Prompt((text, _embedded(embeds)), MEDIA, _root(document))
    return Prompt((text,), 0, _root(document))


def embedding_prompt(document: Document) -> Prompt:
    """Return the prompt of a request for embeddings: `input` (text, texts, token ids or messages), or `messages`, which
    engines accept too.
    """
    given = document.get("input")
    messages = document.get("messages") if given is None else given
    if isinstance(messages, list) and messages and isinstance(first := messages[0], dict) and "role" in first:
        into = Pieces()
        kinds = render_chat(document, messages, into, generates=False)
        return Prompt(into, kinds, _root(document))
    if given is None and messages is not None:
        return batch_prompt(document) if isinstance(messages, list) and messages else chat_prompt(document)
    return Prompt((_input_bytes("input", given),), 0, _root(document))


def responses_prompt(document: Document) -> Prompt:
    """Return the prompt of a response: `instructions` as the system's text, and then `input`, which is a text or a list
    of items.
    """
    if document.get("input") is None:
        raise bad_field("input", None, "give a text or a list of items")
    chat = chat_of_response(document)
    into = Pieces()
    kinds = render_chat(chat, chat["messages"], into)
    earlier = document.get("previous_input_messages")
    if earlier:
        into[:0] = (_EARLIER, canonical_json(earlier))
    return Prompt(into, kinds, _root(document))


def anthropic_prompt(document: Document) -> Prompt:
    """Return the prompt of a request in Anthropic's protocol: `system` (a text or blocks), and then `messages`."""
    _listed("messages", document.get("messages"), "messages")
    chat = chat_of_messages(document, anthropic_tools=True)
    into = Pieces()
    kinds = render_chat(chat, chat["messages"], into)
    return Prompt(into, kinds, _root(document))


def invocation_prompt(document: Document) -> Prompt:
    """Return the prompt of a request on SageMaker's single path.

    The fields show the kind of document, in vLLM's order: a chat, a completion, an embedding or a classification;
    otherwise a ranking, scores, a pooling, or a document of a kind that only the engine knows.
    """
    if document.get("messages") is not None:
        return chat_prompt(document)
    if is_completion(invocation_prompt, document):
        return completion_prompt(document)
    return _pooled_prompt(document) if document.get("input") is None else embedding_prompt(document)


def is_completion(reader: PromptReader, document: Document) -> bool:
    """Return whether this reader treats the document as a completion, which may have several prompts."""
    if reader is not invocation_prompt:
        return reader is completion_prompt
    return document.get("messages") is None and (document.get("prompt") is not None or document.get("prompt_embeds") is not None)


def no_prompt(document: Document) -> Prompt:
    """Return an empty prompt, because the request is not routed by its text."""
    return _NO_PROMPT


def texts_of(*fields: str) -> PromptReader:
    """Return a reader that joins the texts of these fields; missing fields are skipped. It reads `messages` as a chat,
    and each item of `images` as a medium.
    """

    def read(document: Document) -> Prompt:
        into = Pieces()
        kinds = 0
        for field in fields:
            value = document.get(field)
            if field == "messages" and isinstance(value, list):
                kinds |= render_chat(document, value, into, generates=False)
            elif field == "images" and isinstance(value, list):
                kinds |= _collect([{"type": "image_url", "image_url": image} for image in value], into, 0)
            elif value is not None:
                kinds |= _collect(value, into, 0)
        return Prompt(into, kinds, _root(document))

    return read


SCORED = ("text_1", "queries", "data_1", "text_2", "documents", "items", "data_2")
"""The fields that may have the texts to score. A request has two of them."""

_pooled_prompt = texts_of("query", *SCORED, "data")
_NO_PROMPT = Prompt(())
_ROOTS = frozenset(ROOTS)
_NEXT, _SUFFIX, _EARLIER, _EMBEDDED = mark("next"), mark("suffix"), mark("earlier"), mark("embedded")


def _embedded(embeds: object) -> bytes:
    return _EMBEDDED + medium({"embeds": embeds})[1]


def _root(document: Document) -> bytes:
    """Return the values that add no bytes to the prompt but change all its tokens: the fields of `ROOTS` that differ
    from their default. Empty if there are none.
    """
    if _ROOTS.isdisjoint(document):
        return b""
    found = {field: value for field, default in ROOTS.items() if (value := document.get(field)) is not None and value != default}
    return canonical_json(found) if found else b""


def _listed(field: str, value: object, items: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_field(field, value, f"give a list of {items}")
    return value


def _collect(value: object, into: Pieces, depth: int) -> int:
    """Append the texts and media in a value to `into`. Return the flags of its contents besides plain text (`TOOLS`,
    `MEDIA`).
    """
    kinds = 0
    if isinstance(value, str):
        into.append(value.encode())
    elif depth < _DEEPEST and isinstance(value, list):
        for item in value:
            kinds |= _collect(item, into, depth + 1)
    elif depth < _DEEPEST and isinstance(value, dict):
        if any(word in str(value.get("type")) for word in ("image", "audio", "video")):
            into.append(into.stand_in(value)[1])
            return MEDIA
        for field in _TEXT_FIELDS:
            if field in value:
                kinds |= _collect(value[field], into, depth + 1)
    return kinds


def _input_bytes(field: str, value: object) -> bytes:
    """Return the bytes of an input: a string, strings, token ids, lists of token ids, or objects with texts. A token id
    has 4 bytes.
    """
    if isinstance(value, str):
        return value.encode()
    if value is None:
        raise bad_field(field, value, "give a string, a list of strings or a list of token ids")
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        rows = value if isinstance(value[0], list) else [value]
        with suppress(TypeError, OverflowError):
            return b"".join(array("I", row).tobytes() for row in rows)
    texts = Pieces()
    _collect(value, texts, 0)
    return b"".join(texts)
