"""Converts the rest of a streamed answer, which another engine generates, so that for the client it continues the first
part.

The answer keeps its id, time and model. Beginnings that the client has received are not repeated: the role, and the
beginning of the message, of its block or of its item. Token counts are the counts of the whole answer: the prompt once,
and the output of both parts. A message of Anthropic's protocol is continued as a chat (`continuations`), so the chunks
of that chat are converted to events of Anthropic's protocol.
"""

from __future__ import annotations

from typing import Any

from fairlead_router.protocols.answers import Failure, StreamReader, Usage, decoded
from fairlead_router.protocols.answers_so_far import AnswerSoFar, MessageSoFar, ResponseSoFar, encoded, events_of
from fairlead_router.protocols.continuations import Rest

Event = dict[str, Any]

_BEGAN_AGAIN = Failure("the engine does not continue the text, but reasons again")
_THOUGHTS = ("reasoning", "reasoning_content")


class Continued:
    """Converts the events of the rest of an answer. Call `write` for each event, `done` for `[DONE]`, and `end` when
    the stream is over.
    """

    def __init__(self, rest: Rest, sent: AnswerSoFar) -> None:
        self.rest = rest
        self.sent = sent
        self.failure: Failure | None = None

    def write(self, name: bytes, document: Event) -> bytes:
        """Return the bytes for the client that correspond to an event of the rest; empty if the client gets nothing."""
        raise NotImplementedError

    def done(self) -> bytes:
        """Return the bytes for the client that correspond to `[DONE]`, the last event of the rest."""
        return b"data: [DONE]\n\n"

    def end(self) -> bytes:
        """Return the bytes that the client still has to get when the stream is over, for example because its last event
        is missing.
        """
        return b""


class ChunkRest(Continued):
    """Converts the rest of a chat or a completion."""

    def __init__(self, rest: Rest, sent: AnswerSoFar) -> None:
        super().__init__(rest, sent)
        self._lacks_done = False
        """Whether the client has received the finish reason, but not `[DONE]`."""

    def done(self) -> bytes:
        """See `Continued`."""
        self._lacks_done = False
        return super().done()

    def end(self) -> bytes:
        """See `Continued`."""
        return self.done() if self._lacks_done else b""

    def write(self, name: bytes, document: Event) -> bytes:
        """See `Continued`."""
        document.update(self.sent.first)
        choices = document.get("choices")
        kept = [choice for choice in choices if self._go_on(choice)] if isinstance(choices, list) else []
        usage = document.get("usage")
        if isinstance(usage, dict):
            _count_whole(usage, self.rest, "prompt_tokens", "completion_tokens", "prompt_tokens_details")
        if choices and not kept:
            return b""
        if self.sent.has_content:
            document.pop("prompt_token_ids", None)
        return b"data: " + encoded(document) + b"\n\n"

    def _go_on(self, choice: Any) -> bool:
        """Return whether the choice has anything that the client has not received yet. Removes its other parts."""
        if not isinstance(choice, dict):
            return True
        delta, ends = choice.get("delta"), bool(choice.get("finish_reason"))
        self._lacks_done = self._lacks_done or ends
        if self.sent.has_content:
            choice.pop("prompt_token_ids", None)
        said = delta if isinstance(delta, dict) else choice
        if said is delta and choice.get("index", 0) in self.sent.choices:
            said.pop("role", None)
        if self.sent.text and any(said.get(name) for name in _THOUGHTS):
            self.failure = self.failure or _BEGAN_AGAIN
        if self.rest.only_end:
            said.update({field: "" for field in ("content", "text") if said.get(field)})
            choice.update({"finish_reason": "length" if ends else None, **({"token_ids": []} if choice.get("token_ids") else {})})
            return ends
        return ends or bool(choice.get("token_ids")) or any(given for field, given in said.items() if field not in _NO_CONTENT)


_NO_CONTENT = frozenset({"index", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids", "delta"})


def _count_whole(usage: Event, rest: Rest, prompt: str, output: str, details: str) -> None:
    """Change the token counts of a rest to the counts of the whole answer: the `given_tokens`, which were prompt in the
    request for the rest, count as output.
    """
    if type(usage.get(prompt)) is int:
        usage[prompt] = max(0, usage[prompt] - rest.given_tokens)
    if type(usage.get(output)) is int:
        usage[output] = rest.given_tokens + (0 if rest.only_end else usage[output])
    if type(usage.get("total_tokens")) is int:
        usage["total_tokens"] = (usage.get(prompt) or 0) + (usage.get(output) or 0)
    found = usage.get(details)
    if isinstance(found, dict):
        _limit_parts(found, usage.get(prompt) or 0)


def _limit_parts(details: Event, left: int) -> None:
    for field in _OF_THE_PROMPT:
        if type(details.get(field)) is int:
            details[field] = min(details[field], left)
            left -= details[field]


_OF_THE_PROMPT = ("cached_tokens", "created_cache_tokens", "cache_write_tokens")
"""Fields of the usage with the numbers of prompt tokens that the engine found in its cache, or added to it. The engine
counts whole blocks, and the last block may include the beginning of the answer.
"""
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}


class MessageRest(Continued):
    """Converts the chunks of a chat to the rest of a message in Anthropic's protocol."""

    def __init__(self, rest: Rest, sent: MessageSoFar) -> None:
        super().__init__(rest, sent)
        self._block = sent.block
        self._open = sent.block_kind
        self._calls: dict[Any, str] = {}
        self._reason: str | None = None
        self._is_done = False
        self._deltas = 0
        self._stop: Any = None
        self._usage: Event = {}

    def write(self, name: bytes, document: Event) -> bytes:
        """See `Continued`."""
        usage = document.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return b""
        delta = choice.get("delta")
        events = b"" if not isinstance(delta, dict) or self.rest.only_end else self._delta(delta)
        if choice.get("finish_reason"):
            self._reason, self._stop = str(choice["finish_reason"]), choice.get("stop_reason")
        return events

    def done(self) -> bytes:
        """See `Continued`."""
        reason = "max_tokens" if self.rest.only_end else _REASONS.get(self._reason or "", "end_turn")
        stop = self._stop if reason == "end_turn" and isinstance(self._stop, str) else None
        delta = {"stop_reason": "stop_sequence" if stop is not None else reason, "stop_sequence": stop}
        ends = _event({"type": "message_delta", "delta": delta, "usage": self._counts()})
        self._is_done = True
        return self._close() + ends + _event({"type": "message_stop"})

    def end(self) -> bytes:
        """See `Continued`."""
        return b"" if self._is_done or self._reason is None else self.done()

    def _delta(self, delta: Event) -> bytes:
        events = b""
        if any(delta.get(name) for name in _THOUGHTS):
            self.failure = self.failure or _BEGAN_AGAIN
        if isinstance(text := delta.get("content"), str) and text:
            events += self._enter("text", {"type": "text", "text": ""}) + self._say({"type": "text_delta", "text": text})
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                events += self._call(call)
        return events

    def _call(self, call: Event) -> bytes:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        events = b""
        if call.get("id") is not None and function.get("name"):
            self._calls[call.get("index")] = call["id"]
            block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}}
            events = self._close() + self._enter(f"tool_use {call['id']}", block)
        if function.get("arguments"):
            events += self._say({"type": "input_json_delta", "partial_json": function["arguments"]})
        return events

    def _enter(self, kind: str, block: Event) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._block += 1
        self._open = kind
        return closed + _event({"type": "content_block_start", "index": self._block, "content_block": block})

    def _say(self, delta: Event) -> bytes:
        self._deltas += 1
        return _event({"type": "content_block_delta", "index": self._block, "delta": delta})

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return _event({"type": "content_block_stop", "index": self._block})

    def _counts(self) -> Event:
        usage = self._usage
        if not usage:  # its engine was lost after the last word, and before its counts
            message = self.sent.first.get("message")
            told = message.get("usage") if isinstance(message, dict) else None
            prompt = told.get("input_tokens") if isinstance(told, dict) else None
            return {"input_tokens": prompt or 0, "output_tokens": self.rest.given_tokens + self._deltas}
        _count_whole(usage, self.rest, "prompt_tokens", "completion_tokens", "prompt_tokens_details")
        counts = {"input_tokens": usage.get("prompt_tokens") or 0, "output_tokens": usage.get("completion_tokens") or 0}
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            for field, told in (("cache_read_input_tokens", "cached_tokens"), ("cache_creation_input_tokens", "created_cache_tokens")):
                if type(details.get(told)) is int:
                    counts[field] = details[told]
                    counts["input_tokens"] -= counts[field]
        return counts


class MessageAgain(Continued):
    """Passes on a message that another engine generates from its beginning, because the client has no content of it
    yet.
    """

    def write(self, name: bytes, document: Event) -> bytes:
        """See `Continued`."""
        sent = self.sent
        assert isinstance(sent, MessageSoFar)
        kind = document.get("type")
        if kind == "message_start" and sent.first:
            return b""
        if kind == "content_block_start" and sent.block_kind and document.get("index") == sent.block:
            return b""
        return _event(document)


class ResponseRest(Continued):
    """Converts the rest of a response. The output items of the first part come before the items of the rest."""

    def __init__(self, rest: Rest, sent: ResponseSoFar) -> None:
        super().__init__(rest, sent)
        self._sequence = sent.sequence
        self._shift = sent.output_index
        self._item = sent.open_item
        self._renamed: dict[Any, str] = {}
        self._goes_on = bool(sent.open_item)
        """Whether the client's last item is still open, so that the first item of the rest continues it."""
        self._text = sent.text
        self._is_over = rest.only_end or "output_text.done" in sent.ended

    def write(self, name: bytes, document: Event) -> bytes:
        """See `Continued`."""
        kind = str(document.get("type") or name.decode("latin-1")).removeprefix("response.")
        assert isinstance(self.sent, ResponseSoFar)
        if kind in self.sent.begun:
            return b""
        item = document.get("item")
        if kind == "output_item.added" and self._goes_on and isinstance(item, dict) and not self._renamed:
            if self._text and item.get("type") != "message":
                self.failure = self.failure or _BEGAN_AGAIN
            self._renamed[item.get("id")] = self._item
            return b""
        if kind == "content_part.added" and self._is_known(document) and self.sent.part:
            return b""
        if self._is_over and kind.endswith(".delta"):
            return b""
        if self._is_known(document) and kind in self.sent.ended:
            return b""
        return self._numbered(kind, document)

    def _is_known(self, document: Event) -> bool:
        return document.get("item_id") in self._renamed

    def _numbered(self, kind: str, document: Event) -> bytes:
        known = self._is_known(document)
        if known:
            document["item_id"] = self._item
        if type(document.get("output_index")) is int:
            document["output_index"] += self._shift
        if known and kind == "output_text.done":
            self._prefix(document, "text")
        if known and kind == "content_part.done" and isinstance(document.get("part"), dict):
            self._prefix(document["part"], "text")
        if kind == "output_item.done" and isinstance(document.get("item"), dict):
            self._complete(document["item"])
        response = document.get("response")
        if isinstance(response, dict):
            self._whole(response)
        document["sequence_number"] = self._sequence
        self._sequence += 1
        return b"event: response.%b\ndata: %b\n\n" % (kind.encode(), encoded({**document, "type": f"response.{kind}"}))

    def _prefix(self, holder: Event, field: str) -> None:
        rest = "" if self._is_over else holder.get(field)
        holder[field] = self._text + (rest if isinstance(rest, str) else "")

    def _complete(self, item: Event) -> None:
        """Change a complete item of the rest. If it continues the client's open item, it gets that item's id and
        earlier text.
        """
        if item.get("id") in self._renamed:
            item["id"] = self._item
            content = item.get("content")
            if isinstance(content, list) and content and isinstance(content[0], dict):
                self._prefix(content[0], "text")

    def _whole(self, response: Event) -> None:
        response.update({field: self.sent.first[field] for field in ("id", "created_at", "model") if field in self.sent.first})
        output = response.get("output")
        assert isinstance(self.sent, ResponseSoFar)
        if isinstance(output, list):
            for item in output:
                if isinstance(item, dict):
                    self._complete(item)
            response["output"] = [*self.sent.items, *output]
        usage = response.get("usage")
        if isinstance(usage, dict):
            _count_whole(usage, self.rest, "input_tokens", "output_tokens", "input_tokens_details")


def _event(document: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(document.get("type")).encode(), encoded(document))


def continued(rest: Rest, sent: AnswerSoFar) -> Continued:
    """Return the converter for the rest of an answer, in the client's protocol."""
    if isinstance(sent, MessageSoFar):
        return MessageRest(rest, sent) if rest.path is not None else MessageAgain(rest, sent)
    return ResponseRest(rest, sent) if isinstance(sent, ResponseSoFar) else ChunkRest(rest, sent)


class RestReader(StreamReader):
    """Reads the rest of an answer. `sent`: the first part, which the client has received. `feed` and `end` return the
    bytes for the client. Token counts are the counts of the whole answer.
    """

    __slots__ = ("_rest_of", "_writes")

    def __init__(self, rest: Rest, sent: AnswerSoFar, *, hides_usage: bool) -> None:
        makes_messages = isinstance(sent, MessageSoFar) and rest.path is not None
        super().__init__(rest.dialect, hides_usage=hides_usage and not makes_messages, whole=True)
        self._writes = continued(rest, sent)
        self._rest_of = rest

    @property
    def failure(self) -> Failure | None:
        """The failure (see `StreamReader`). A rest that does not continue the first part is a failure too."""
        return self._writes.failure or super().failure

    @property
    def generated_tokens(self) -> int:
        """See `StreamReader`."""
        return self._rest_of.given_tokens + (0 if self._rest_of.only_end else super().generated_tokens)

    @property
    def counted(self) -> None:
        """Always None, because the engine's count covers only the rest of the answer."""

    def estimated_tokens(self, tokens_per_event: float) -> int:
        """See `StreamReader`."""
        return self._rest_of.given_tokens + (0 if self._rest_of.only_end else super().estimated_tokens(tokens_per_event))

    def usage(self) -> Usage:
        """See `StreamReader`."""
        told = self._spoken.figures.usage(self.generated_tokens)
        rest, counted = self._rest_of, told.prompt_tokens
        prompt = max(0, counted - rest.given_tokens) if counted is not None and rest.exact else None
        return Usage(told.output_tokens, told.cached_tokens, prompt)

    def feed(self, piece: bytes) -> bytes:
        """See `StreamReader`."""
        return self._written(super().feed(piece))

    def end(self) -> bytes:
        """See `StreamReader`."""
        return self._written(super().end()) + (b"" if self._writes.failure is not None else self._writes.end())

    def _made(self, name: bytes, document: Any) -> bytes:
        return self._writes.write(name, document) if isinstance(document, dict) else b""

    def _written(self, shown: bytes) -> bytes:
        if not shown or self._writes.failure is not None:
            return b""
        written: list[bytes] = []
        for name, data in events_of(shown):
            made = self._writes.done() if data == b"[DONE]" else self._made(name, decoded(data) if data else None)
            if self._writes.failure is not None:
                break
            written.append(made)
        return b"".join(written)
