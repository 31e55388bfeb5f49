"""Reading of one streamed answer while it arrives: first token, usage, refusal."""

import re
from collections.abc import Callable

import orjson

from fairlead_simulator.replay.http_client import AnswerReader

REJECTION_HEADERS = (b"x-llm-d-request-dropped-reason", b"x-fairlead-rejection")
_CONTENT = re.compile(rb'"(?:content|text)":\s*"[^"]')
_KEPT_BYTES = 16_384


class StreamedAnswer(AnswerReader):
    """An SSE answer. Only its end is kept. `clock` in seconds; `on_first_token` is called once when set."""

    __slots__ = ("_clock", "_end", "first_token_at", "on_first_token")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._end = b""
        self.first_token_at: float | None = None
        self.on_first_token: Callable[[], None] | None = None

    def on_piece(self, piece: bytes) -> None:
        end = self._end + piece
        if self.first_token_at is None and self.status == 200 and _CONTENT.search(end):
            self.first_token_at = self._clock()
            if self.on_first_token is not None:
                self.on_first_token()
        self._end = end[-_KEPT_BYTES:] if len(end) > 2 * _KEPT_BYTES else end

    @property
    def complete(self) -> bool:
        """Whether the stream said that it was done."""
        return self._end.rstrip().endswith(b"data: [DONE]")

    @property
    def rejected(self) -> bool:
        return self.status in (429, 503)

    def rejection_reason(self) -> str:
        """Why it was refused, from the headers, else by status."""
        for name in REJECTION_HEADERS:
            if name in self.headers:
                return self.text(name) or f"http-{self.status}"
        return f"http-{self.status}"

    def failure_reason(self) -> str:
        """Why an answer that arrived is not a good one."""
        if self.status != 200:
            return f"http-{self.status}"
        return "stream-error" if b'"error"' in self._end else "stream-incomplete"

    def retry_after_seconds(self) -> float:
        """What the refusal asks for; 1 second when it does not say."""
        try:
            return max(0.0, float(self.text(b"retry-after") or 1.0))
        except ValueError:
            return 1.0

    def text(self, header: bytes) -> str | None:
        value = self.headers.get(header)
        return None if value is None else value.decode("latin-1")

    def usage(self) -> tuple[int, int, int] | None:
        """(prompt, cached, completion) tokens of the last reported usage."""
        for line in reversed(self._end.split(b"\n")):
            if line.startswith(b"data: {") and b'"usage"' in line:
                try:
                    usage = orjson.loads(line[6:]).get("usage")
                except orjson.JSONDecodeError:
                    continue
                if usage:
                    details = usage.get("prompt_tokens_details") or {}
                    return usage.get("prompt_tokens", 0), details.get("cached_tokens") or 0, usage.get("completion_tokens", 0)
        return None
