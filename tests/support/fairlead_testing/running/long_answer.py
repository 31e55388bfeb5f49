"""A long streamed answer, read while a test or a benchmark disturbs the engine that generates it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS

FIRST_SECONDS = 4 * PATIENCE_SECONDS
"""The maximum number of seconds until the answer's first piece."""


@dataclass(slots=True)
class LongAnswer:
    """The part of the answer that its client has received so far."""

    instance: str = ""
    """The instance that began the answer."""
    tokens: int = 0
    """The number of received pieces with text."""
    error: str = ""
    """The error with which the answer broke off; empty if it did not."""
    ended: bool = False
    _stops: threading.Event = field(default_factory=threading.Event)
    _begun: threading.Event = field(default_factory=threading.Event)

    def read(self, url: str, model: str, tokens: int) -> None:
        """Request the answer and read it to its end, or until `stop`."""
        document = {
            "model": model,
            "stream": True,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": "Count, and do not stop."}],
        }
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=document, timeout=None, trust_env=False) as answer:
                self.instance = answer.headers.get("x-fairlead-decode") or answer.headers.get("x-fairlead-instance", "")
                for line in answer.iter_lines():
                    self._take(line)
                    if self._stops.is_set():
                        return
        except httpx.HTTPError as error:
            self.error = repr(error)
        self.ended = True
        self._begun.set()

    def _take(self, line: str) -> None:
        if not line.startswith("data: ") or line == "data: [DONE]":
            self.error = self.error or (line if line.startswith("{") else "")
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = str(event["error"])
        self.tokens += sum(bool(choice.get("delta", {}).get("content")) for choice in event.get("choices", ()))
        if self.tokens:
            self._begun.set()


@contextmanager
def long_answer(url: str, model: str, tokens: int) -> Iterator[LongAnswer]:
    """Request an answer of this many tokens from a router, and yield it when it has begun. The client leaves with the
    block.
    """
    answer = LongAnswer()
    reader = threading.Thread(target=answer.read, args=(url, model, tokens), daemon=True)
    reader.start()
    try:
        assert answer._begun.wait(FIRST_SECONDS), "the answer did not begin"
        yield answer
    finally:
        answer._stops.set()
        reader.join(FIRST_SECONDS)
