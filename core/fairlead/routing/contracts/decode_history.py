"""The decodes and prefills of an instance over time. From them, the speed of a request's decode can be related to the
work that ran at the same time.
"""

from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

RATE_SECONDS = 60.0


class DecodeMark(NamedTuple):
    """An instance's totals up to `at` (Unix seconds): context tokens × seconds, decoding requests × seconds, predicted
    prefill seconds, and computed prompt tokens.
    """

    at: float
    token_seconds: float
    request_seconds: float
    prefill_seconds: float
    prefilled_tokens: int

    def scaled(self, times: float) -> "DecodeMark":
        """Return the mark as if all prefills had been predicted to take `times` times as long."""
        return self._replace(prefill_seconds=self.prefill_seconds * times)


@dataclass(slots=True)
class DecodeHistory:
    """The totals of one instance, updated whenever a decode begins or ends there."""

    prefill_seconds: float = 0.0
    """Total of the predicted seconds of all prefills on the instance; prefills delay the decodes that run at the same
    time.
    """
    prefilled_tokens: int = 0
    """Total of the uncached prompt tokens of all prefills on the instance."""
    prefilled_per_second: float = 0.0
    """Prefilled tokens per second, averaged over about a minute."""
    _mark: DecodeMark = field(default=DecodeMark(0.0, 0.0, 0.0, 0.0, 0))
    _tokens: int = 0
    _requests: int = 0

    def advance(self, now: float, tokens: int, requests: int) -> DecodeMark:
        """Return the totals up to `now`. Then count `requests` decoding requests with `tokens` context tokens."""
        at, token_seconds, request_seconds, _, prefilled_tokens = self._mark
        seconds = now - at
        if seconds > 0:
            rate = (self.prefilled_tokens - prefilled_tokens) / seconds
            self.prefilled_per_second += (1 - exp(-seconds / RATE_SECONDS)) * (rate - self.prefilled_per_second)
            at, token_seconds, request_seconds = now, token_seconds + self._tokens * seconds, request_seconds + self._requests * seconds
        self._mark = mark = DecodeMark(at, token_seconds, request_seconds, self.prefill_seconds, self.prefilled_tokens)
        self._tokens, self._requests = tokens, requests
        return mark
