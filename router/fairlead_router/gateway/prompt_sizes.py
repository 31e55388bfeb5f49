"""What a prompt's tokens are counted from: its kind, and the bytes of it that its engine will turn into tokens.

The canonical prompt has everything that an engine renders, so its length is what counts. But a token of JSON has fewer
bytes than one of prose, what stands for a medium is an estimate, and some of a prompt may be at the engine. What of
these a prompt has decides its kind, and a token's size is learned for each kind alone
(`fairlead.routing.knowledge.token_sizes`):

    plain text     text alone
    +tools         also tools, calls of them, thoughts or documents
    +media         also images, sounds, videos or files
    +unseen        a part of the prompt is at the engine, or is cut off there: the bytes say little
    token ids      four bytes each, exactly
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.routing.knowledge.token_sizes import GIVEN_IDS
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.prompts import Prompt

_UNSEEN = frozenset({"previous_response_id", "conversation", "prompt_embeds", "truncate_prompt_tokens", "chat_template"})
"""Fields that make a prompt longer or shorter by what is not in its bytes."""
_MAY_HIDE = _UNSEEN | {"truncation"}

_BESIDES = ("", "+tools", "+media", "+tools+media")
"""By the kinds of a prompt."""

Document = Mapping[str, Any]


class PromptSize(NamedTuple):
    """`counted_bytes` are what the prompt's tokens are counted from."""

    kind: str
    counted_bytes: int
    is_plain_text: bool


def prompt_size(endpoint: Endpoint, document: Document, prompt: Prompt) -> PromptSize:
    """What the tokens of a request's prompt are counted from."""
    length = len(prompt.text)
    if _is_token_ids(document):
        return PromptSize(GIVEN_IDS, length, False)
    if not _MAY_HIDE.isdisjoint(document) and _hides_part(document):
        return PromptSize(endpoint.path + "+unseen", length, False)
    if not prompt.kinds:
        return PromptSize(endpoint.path, length, endpoint.streams)
    return PromptSize(endpoint.path + _BESIDES[prompt.kinds], length, False)


def _hides_part(document: Document) -> bool:
    return document.get("truncation") == "auto" or any(document.get(field) for field in _UNSEEN)


def _is_token_ids(document: Document) -> bool:
    given = document.get("prompt") or document.get("input_ids") or document.get("input")
    if not isinstance(given, list) or not given:
        return False
    first = given[0]
    return type(first) is int or (isinstance(first, list) and bool(first) and type(first[0]) is int)
