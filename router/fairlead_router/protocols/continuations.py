"""Makes the request for the rest of an answer that broke off: the client's request plus the part of the answer that the
client has received.

The prompt of a completion gets the text appended. A chat gets the text as an assistant's message to be continued
(`continue_final_message`). A request in Anthropic's protocol also becomes such a chat, because vLLM's `/v1/messages`
begins a new message after an assistant's message. The input of a response gets the text as a message in progress. If
the token ids are known, they are sent too and take precedence, so that the engine continues after exactly the same
tokens. Without them the engine might tokenize the text differently, and templates trim it.

Sources: vLLM 0.32, `entrypoints/openai/chat_completion/protocol.py`, `entrypoints/openai/responses/utils.py`
(`should_continue_final_message`), `renderers/online_renderer.py` (`prompt_token_ids` of `kv_transfer_params`),
`entrypoints/anthropic/serving.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from fairlead.values import value
from fairlead_router.protocols.answers_so_far import AnswerSoFar, ResponseSoFar, encoded
from fairlead_router.protocols.body_edits import edited
from fairlead_router.protocols.conversations import chat_of_messages
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.peer_fields import KV_TRANSFER
from fairlead_router.protocols.prompts import Document, truth

CHAT_PATH = b"/v1/chat/completions"
LONGEST_STOPS = 4096
"""Maximum number of characters of all stop strings of a request together. Longer stop strings are not compared with the
end of the text.
"""
OWN_LIMIT = 16
"""Maximum number of tokens that an engine generates for a completion whose request sets no limit."""


class Uncarried(StrEnum):
    """The reason why a broken-off answer was not continued by another engine."""

    OFF = "off"
    """The pool's spec switches continuing off (`spec.routing.continueAnswers`)."""
    LIMIT = "limit"
    """The answer was continued as often as is allowed for one request."""
    OUT_OF_TIME = "out-of-time"
    NO_INSTANCE = "no-instance"
    ENDED = "ended"
    """The client has already received the answer's finish reason. Only events after the finish reason were lost."""
    TOO_LONG = "too-long"
    """The answer has more text than the router keeps."""
    UNREADABLE = "unreadable"
    SEVERAL_CHOICES = "several-choices"
    LOG_PROBABILITIES = "log-probabilities"
    STRUCTURED_OUTPUT = "structured-output"
    BEAM_SEARCH = "beam-search"
    ECHO = "echo"
    TOOL_CALL = "tool-call"
    """The answer has begun a tool call or has content other than text. Or it may have begun a tool call, because the
    client has token ids whose text the engine has not sent yet.
    """
    REASONING = "reasoning"
    """The answer has only reasoning so far. Models differ in where a prompt holds reasoning, so another instance cannot
    continue it.
    """
    STOP_STRING = "stop-string"
    """The text may end with the beginning of a stop string. Another engine would not recognise that stop string."""
    CUT_PROMPT = "cut-prompt"
    """The engine cuts off part of the prompt. It would cut a longer prompt at another position."""
    ENGINE_STATE = "engine-state"
    """The answer depends on state that only its engine has: a stored response, KV blocks that the client names, or
    embeddings.
    """
    PROTOCOL = "protocol"
    """The pool's engines are not known to continue answers in this protocol, or with these fields of the request."""
    REFUSED = "refused"
    """The engine that was asked to continue the answer refused to."""


class Unlike(StrEnum):
    """The reason why the rest of the answer may differ from the rest that the first engine would have generated."""

    SEED = "seed"
    """The request has a seed for sampling, and the sampler's state is lost."""
    PENALTIES = "penalties"
    """Presence and frequency penalties apply to output tokens, but the earlier part of the answer counts as prompt now.
    """


@value
class Rest:
    """The request for the rest of an answer.

    `path`: the URL path; None = the path of the client's request. `given_tokens`: the number of the answer's tokens
    that the client has received. `exact`: whether an engine or its tokenizer has counted these tokens.
    """

    path: bytes | None
    body: bytes
    dialect: Dialect
    document: Document
    given_tokens: int
    exact: bool
    only_end: bool = False
    """Whether the client has already received the maximum number of tokens, so that only the finish reason is missing.
    """


_LIMITS = {
    Dialect.OPENAI: ("max_tokens", "max_completion_tokens"),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.ANTHROPIC: ("max_tokens",),
}
_FREE = (None, False, "text")
_GUIDED = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "regex", "json_schema", "ebnf")
_LOGPROBS = ("prompt_logprobs", "top_logprobs", "return_logprob")
_OF_SAMPLING = ("model", "temperature", "top_p", "top_k", "watermarking", "vllm_xargs")
"""Fields that have the same meaning in `/v1/messages` and in a chat."""


def why_not(document: Document, dialect: Dialect, sent: AnswerSoFar, engine_type: str) -> Uncarried | None:
    """Return the reason why no other engine can continue this answer; None if another engine can. If the answer has no
    content yet, another engine can always get the request again, unless the request depends on the state of one engine.
    """
    if _rests_on_engine(document):
        return Uncarried.ENGINE_STATE
    if sent.has_end:
        return Uncarried.ENDED
    if not sent.has_content:
        return None
    if sent.is_too_long:
        return Uncarried.TOO_LONG
    if isinstance(sent, ResponseSoFar) and (engine_type == "sglang" or not sent.open_item):
        return Uncarried.PROTOCOL
    return _of_request(document, dialect) or _of_answer(document, sent)


def _rests_on_engine(document: Document) -> bool:
    rests = any(document.get(field) for field in ("previous_response_id", "conversation", "prompt_embeds", KV_TRANSFER))
    return rests or truth(document.get("background")) is not False


def _of_request(document: Document, dialect: Dialect) -> Uncarried | None:
    prompt = document.get("prompt")
    if (document.get("n") or 1) != 1 or (document.get("best_of") or 1) != 1 or _are_several(prompt):
        return Uncarried.SEVERAL_CHOICES
    if document.get("use_beam_search"):
        return Uncarried.BEAM_SEARCH
    if document.get("echo"):
        return Uncarried.ECHO
    logprobs = document.get("logprobs")
    if (logprobs is not None and logprobs is not False) or any(document.get(field) for field in _LOGPROBS):
        return Uncarried.LOG_PROBABILITIES
    if _is_guided(document, dialect):
        return Uncarried.STRUCTURED_OUTPUT
    if document.get("truncate_prompt_tokens") is not None or document.get("truncation") not in (None, "disabled"):
        return Uncarried.CUT_PROMPT
    if document.get("suffix") or (document.get("add_generation_prompt") is False and not document.get("continue_final_message")):
        return Uncarried.PROTOCOL
    return None


def _are_several(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], str | list)


def _is_guided(document: Document, dialect: Dialect) -> bool:
    if any(document.get(field) for field in _GUIDED):
        return True
    config = document.get("output_config") if dialect is Dialect.ANTHROPIC else None
    forms = (document.get("response_format"), document.get("text"), config)
    if any(isinstance(form, dict) and _kind(form.get("format", form)) not in _FREE for form in forms):
        return True
    return _kind(document.get("tool_choice")) not in (None, "auto", "none")


def _kind(given: object) -> object:
    return given.get("type") if isinstance(given, dict) else given


def _of_answer(document: Document, sent: AnswerSoFar) -> Uncarried | None:
    if sent.has_others or (sent.ids_lead and document.get("tools")):
        return Uncarried.TOOL_CALL
    if sent.choices - {0}:
        return Uncarried.SEVERAL_CHOICES
    if sent.has_logprobs:
        return Uncarried.LOG_PROBABILITIES
    try:
        text, thoughts = sent.text, sent.thoughts
    except UnicodeError:
        return Uncarried.UNREADABLE
    if thoughts and not text:
        return Uncarried.REASONING
    if sent.has_token_ids and (stops(document) or not sent.ids):  # the client has ids of text that it lacks
        return Uncarried.STOP_STRING
    return Uncarried.STOP_STRING if _may_stop(document, text) else None


def _may_stop(document: Document, text: str) -> bool:
    """Return whether the text may end with the beginning of a stop string.

    Some engines send such a beginning to the client. The engine that continues the answer then generates only the end
    of the stop string, and does not recognise it. If the stop strings are too long to compare, return True.
    """
    given = document.get("stop_sequences") or document.get("stop")
    stops = [given] if isinstance(given, str) else [stop for stop in given or () if isinstance(stop, str)]
    if sum(map(len, stops)) > LONGEST_STOPS:
        return True
    return any(text.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))


def unlike(document: Document) -> Unlike | None:
    """Return the reason why the rest of the answer may differ from the rest that the first engine would have generated;
    None if it will not differ.
    """
    if any(document.get(field) for field in ("presence_penalty", "frequency_penalty")):
        return Unlike.PENALTIES
    return Unlike.SEED if document.get("seed") is not None and document.get("temperature") != 0 else None


def stops(document: Document) -> bool:
    """Return whether the request has stop strings. Its engine may then hold text back, and send more token ids than
    text.
    """
    return bool(document.get("stop_sequences") or document.get("stop"))


def rest(
    body: bytes,
    document: Document,
    dialect: Dialect,
    sent: AnswerSoFar,
    *,
    given_tokens: int = 0,
    exact: bool = True,
    ids: Sequence[int] = (),
    asks_usage: bool = True,
) -> Rest | None:
    """Return the request for the rest of an answer; None if the prompt cannot be extended. `why_not` must have returned
    None for the answer.

    `body`, `document`: the client's request, and its decoded form. `ids`: the token ids of the prompt and of the answer
    so far; empty if unknown. `asks_usage`: whether the engine shall report its token counts.
    """
    if not sent.has_content:
        return Rest(path=None, body=body, dialect=dialect, document=document, given_tokens=0, exact=True)
    if not sent.text and not ids:
        return None
    limits, only_end = _limited(document, dialect, given_tokens)
    longer = _longer(document, dialect, sent, ids)
    if longer is None:
        return None
    changes = {**longer, **limits, **_counting(document, dialect, asks_usage=asks_usage)}
    if dialect is Dialect.ANTHROPIC:
        made, whole = encoded(changes), changes
    else:
        made, whole = edited(body, document, changes), {**document, **changes}
    return Rest(
        path=CHAT_PATH if dialect is Dialect.ANTHROPIC else None,
        body=made,
        dialect=Dialect.OPENAI if dialect is Dialect.ANTHROPIC else dialect,
        document=whole,
        given_tokens=given_tokens,
        exact=exact,
        only_end=only_end,
    )


def _limited(document: Document, dialect: Dialect, given_tokens: int) -> tuple[dict[str, Any], bool]:
    """Return the fields of the request that limit the number of the answer's tokens, with the tokens that the client
    has received subtracted. Also return whether no tokens are left.
    """
    changes: dict[str, Any] = {}
    limits = [field for field in _LIMITS[dialect] if document.get(field) is not None]
    left = [_number(document[field]) - given_tokens for field in limits]
    if not limits and "prompt" in document:
        limits, left = ["max_tokens"], [OWN_LIMIT - given_tokens]
    changes = {field: max(1, tokens) for field, tokens in zip(limits, left, strict=True)}
    if document.get("min_tokens"):
        changes["min_tokens"] = max(0, _number(document["min_tokens"]) - given_tokens)
    only_end = any(tokens <= 0 for tokens in left)
    return changes | ({"min_tokens": 0} if only_end and "min_tokens" in changes else {}), only_end


def _number(given: object) -> int:
    """Return a limit as an integer, converted as engines do. The gateway has already checked that it is a number."""
    return given if isinstance(given, int) else int(float(str(given).replace("_", "")))


def _counting(document: Document, dialect: Dialect, *, asks_usage: bool) -> dict[str, Any]:
    options = document.get("stream_options")
    if dialect is Dialect.RESPONSES or not asks_usage:
        return {}
    return {"stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True}}


def _longer(document: Document, dialect: Dialect, sent: AnswerSoFar, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return the prompt's fields with the answer's text appended; None if the prompt cannot be extended."""
    if dialect is Dialect.RESPONSES:
        return {"input": _input(document.get("input"), sent)}
    if dialect is Dialect.ANTHROPIC:
        chat = chat_of_messages(document, json_arguments=True)
        fields = {field: document[field] for field in _OF_SAMPLING if document.get(field) is not None}
        if document.get("stop_sequences"):
            fields["stop"] = document["stop_sequences"]
        return {**chat, **fields, "stream": True, **(_continued(chat, sent) or {}), **_known(ids)}
    if "messages" in document:
        continued = _continued(document, sent)
        return None if continued is None else {**continued, **_known(ids)}
    prompt = document.get("prompt")
    if ids:
        return {"prompt": list(ids)}
    return {"prompt": prompt + sent.text} if isinstance(prompt, str) else None


def _known(ids: Sequence[int]) -> dict[str, Any]:
    return {KV_TRANSFER: {"prompt_token_ids": list(ids)}} if ids else {}


def _continued(chat: Document, sent: AnswerSoFar) -> dict[str, Any] | None:
    """Return the chat's fields with the answer's text as the last message. If the client itself wants the last message
    continued, the text is appended to that message. None if this is not possible.
    """
    messages = list(chat["messages"])
    said: dict[str, Any] = {"role": "assistant", "content": sent.text}
    if sent.thoughts:
        said |= {"reasoning": sent.thoughts, "reasoning_content": sent.thoughts}
    if chat.get("continue_final_message"):
        last = messages.pop() if messages and isinstance(messages[-1], dict) else {}
        content = _with_text(last.get("content"), sent.text)
        if content is None:
            return None
        said = {**last, "content": content}
    return {"messages": [*messages, said], "continue_final_message": True, "add_generation_prompt": False}


def _with_text(content: object, text: str) -> object:
    if isinstance(content, str):
        return content + text
    last = content[-1] if isinstance(content, list) and content else None
    if isinstance(content, list) and isinstance(last, dict) and isinstance(last.get("text"), str):
        return [*content[:-1], {**last, "text": last["text"] + text}]
    return None


def _input(given: object, sent: AnswerSoFar) -> list[Any]:
    """Return the input of the request for the rest of a response. It consists of the client's input, the complete
    output items, and the text so far as a message in progress.
    """
    assert isinstance(sent, ResponseSoFar)
    items = list(given) if isinstance(given, list) else [{"type": "message", "role": "user", "content": given}]
    part = {"type": "output_text", "text": sent.text, "annotations": []}
    said = {"type": "message", "id": sent.open_item or "msg_0", "role": "assistant", "status": "in_progress", "content": [part]}
    return [*items, *sent.items, said]
