"""Asks an engine to tokenize a prompt, and checks the result against the engine's other reports about the request.

The router sends its own rendering of a request to the engine's tokenizer. Two endpoints of vLLM show whether the engine
renders the request in the same way: its renderer (`POST …/render`, since 0.30 with `--enable-scale-out`) returns the
token ids of the request, and `POST /v1/messages/count_tokens` returns their number. If the engine has a renderer, the
renderer's token ids are used. Otherwise the router drops each rendering with another number of tokens than the engine
counts. It keeps the tokens of the remaining renderings only if these agree or the engine is known to use the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from fairlead.values import value
from fairlead_process.json_documents import read_json
from fairlead_process.tasks import beside_the_loop
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events.prompt_texts import COMPLETIONS, MESSAGES, Question, detokenizing
from fairlead_router.protocols.canonical_json import NestsTooDeeply, canonical_json

TIMEOUT_SECONDS = 10.0
MOST_ANSWER_BYTES = 32 * 1024 * 1024
TEMPLATE_BYTES, BYTES_OF_BYTE = 1024 * 1024, 64
"""Limits on the bytes of a response: a fixed number for the chat template, and a number for each byte of the request.
"""

NOT_OFFERED = frozenset({403, 404, 405, 501})
"""HTTP statuses of an engine for a path that it does not have or that its flags switch off."""

NOT_OFFERED_SECONDS = 600.0
"""Seconds until the router tries a path again that an engine did not offer, because another engine may have got the
address.
"""

_COUNTED = ("messages", "system", "tools", "tool_choice", "thinking", "output_config", "chat_template_kwargs")
"""Fields of a `/v1/messages` body that determine its number of tokens and that `count_tokens` accepts."""


class Disputed(Exception):
    """An exception: the engine confirms none of the router's renderings, or several whose tokens differ."""


@value
class PromptAnswer:
    """A tokenized prompt. `tokens`: the token ids. `strings`: the text of each token; empty if the engine does not
    report it.
    """

    question: Question
    tokens: list[int]
    strings: Sequence[str] = ()


class _Tokens(msgspec.Struct):
    tokens: list[int]
    token_strs: list[str] | None = None


class _Texts(msgspec.Struct):
    text: list[str]


class _Rendered(msgspec.Struct):
    token_ids: list[int]


class _Count(msgspec.Struct):
    input_tokens: int


_TOKENS, _TEXTS = msgspec.json.Decoder(_Tokens), msgspec.json.Decoder(_Texts)
_RENDERED, _COUNT = msgspec.json.Decoder(_Rendered), msgspec.json.Decoder(_Count)
Answer = TypeVar("Answer")


@value
class Asked:
    """The request whose prompt is to be tokenized, and the engine that tokenizes it."""

    address: str
    engine_type: str
    model: str
    """The name of the model or adapter at the engine."""
    path: str
    document: Mapping[str, Any]


class PromptQuestions:
    """Asks engines to tokenize prompts. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, now: Callable[[], float]) -> None:
        self._upstream = upstream
        self._now = now
        self._missing: dict[tuple[str, str], float] = {}
        """By address and path: the time until which no request is sent there, because the engine does not offer the
        path.
        """

    async def answer(self, asked: Asked, questions: Sequence[Question], *, first_is_usual: bool) -> PromptAnswer:
        """Return the tokens of the rendering that the engine confirms. `questions`: the possible renderings of the
        request. `first_is_usual`: whether the engine was observed to render other requests as in the first question.

        Raises UpstreamFailure if the engine fails, Disputed if it confirms no rendering or several with different
        tokens, and msgspec.MsgspecError for a response that cannot be parsed.
        """
        rendered = await self._rendered(asked)
        count = await self._count(asked) if rendered is None else len(rendered)
        confirmed: list[PromptAnswer] = []
        refusals: list[UpstreamFailure] = []
        for question in questions:
            answer = await self._tokenized(asked, question, refusals)
            if answer is None or (count is not None and len(answer.tokens) != count):
                continue
            if answer.tokens == rendered or (rendered is None and question is questions[0] and first_is_usual):
                return answer
            confirmed.append(answer)
        if rendered is not None:
            return PromptAnswer(question=questions[0], tokens=rendered)
        if len(refusals) == len(questions):
            raise refusals[0]
        return _agreed(asked, confirmed)

    async def _tokenized(self, asked: Asked, question: Question, refusals: list[UpstreamFailure]) -> PromptAnswer | None:
        """Return the engine's tokens for one rendering; None if the engine refuses it, because its template refuses
        this order of messages. The refusal is added to `refusals`.
        """
        try:
            told = await self._posted(asked, "/tokenize", question.body(asked.model), _TOKENS)
        except UpstreamFailure as failure:
            if failure.status != 400:
                raise
            refusals.append(failure)
            return None
        strings = told.token_strs
        if strings is None and asked.engine_type == "sglang":
            strings = await self._texts(asked, told.tokens)
        return PromptAnswer(question=question, tokens=told.tokens, strings=strings or ())

    async def _texts(self, asked: Asked, tokens: list[int]) -> list[str]:
        """Return the text of each token, for an engine whose `/tokenize` returns only ids; empty if the engine does not
        return the texts.
        """
        try:
            return (await self._posted(asked, "/detokenize", detokenizing(tokens, asked.model), _TEXTS)).text
        except (UpstreamFailure, msgspec.MsgspecError):
            return []

    async def _rendered(self, asked: Asked) -> list[int] | None:
        """Return the token ids of the request from the engine's own renderer; None if the engine has no renderer for
        its path.
        """
        if asked.engine_type == "sglang" or asked.path == COMPLETIONS:
            return None
        body = {**asked.document, "model": asked.model, "stream": False, "mm_payload": "none"}
        body.pop("stream_options", None)
        answer = await self._offered(asked, asked.path + "/render", body)
        return None if answer is None else read_json(answer, _RENDERED).token_ids

    async def _count(self, asked: Asked) -> int | None:
        """Return the engine's own count of the request's tokens; None if the engine has no endpoint for this."""
        if asked.path != MESSAGES:
            return None
        body = {"model": asked.model} | {field: asked.document[field] for field in _COUNTED if field in asked.document}
        answer = await self._offered(asked, "/v1/messages/count_tokens", body)
        return None if answer is None else read_json(answer, _COUNT).input_tokens

    async def _offered(self, asked: Asked, path: str, body: Mapping[str, Any]) -> bytes | None:
        if self._now() < self._missing.get((asked.address, path), 0.0):
            return None
        try:
            return await self._post(asked, path, canonical_json(body))
        except NestsTooDeeply:  # in a field that no prompt is made of
            return None
        except UpstreamFailure as failure:
            if failure.status not in NOT_OFFERED:
                raise
            self._note_missing(asked.address, path)
            return None

    def _note_missing(self, address: str, path: str) -> None:
        now = self._now()
        self._missing = {place: until for place, until in self._missing.items() if until > now}
        self._missing[address, path] = now + NOT_OFFERED_SECONDS

    async def _posted(self, asked: Asked, path: str, body: bytes, decoder: msgspec.json.Decoder[Answer]) -> Answer:
        answer = await self._post(asked, path, body)
        return await beside_the_loop(len(answer), read_json, answer, decoder)

    async def _post(self, asked: Asked, path: str, body: bytes) -> bytes:
        return await self._upstream.fetch(asked.address, path, seconds=TIMEOUT_SECONDS, limit=longest_answer(body), body=body)


def longest_answer(body: bytes) -> int:
    """Return the maximum number of bytes that an engine may send in response to this body."""
    return min(MOST_ANSWER_BYTES, TEMPLATE_BYTES + BYTES_OF_BYTE * len(body))


def _agreed(asked: Asked, confirmed: Sequence[PromptAnswer]) -> PromptAnswer:
    if confirmed and all(answer.tokens == confirmed[0].tokens for answer in confirmed):
        return confirmed[0]
    found = f"confirms {len(confirmed)} renderings with different tokens" if confirmed else "confirms none of the router's renderings"
    raise Disputed(f"engine {asked.address}, asked to tokenize a request to {asked.path}, {found}")
