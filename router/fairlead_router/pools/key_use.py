"""Counts the use of each gateway key. The counts are taken regularly for reports."""

from __future__ import annotations

from fairlead.gateway_keys import MINUTE_SECONDS, KeyRefusal
from fairlead.reports.key_use import KeyUse

TAKE_SECONDS = 1.0
"""Minimum number of seconds between two times at which the counts are taken. So each key causes few records, and a
killed router loses the counts of about one second.
"""

Counted = tuple[str, int, KeyRefusal | None]
"""The identity of a count: the id of the gateway key, the Unix time at which the minute starts, and the reason of the
refusals (None for requests that were not refused).
"""


class KeyUseCounts:
    """Numbers of requests and tokens since the last `take`, by key, minute and reason of refusal. A key usually has one
    count for each of its outcomes, because the counts are taken every second.
    """

    __slots__ = ("_counts", "_taken_at")

    def __init__(self) -> None:
        self._counts: dict[Counted, list[int]] = {}
        self._taken_at = 0.0

    def add(
        self,
        key: str,
        now: float,
        *,
        refusal: KeyRefusal | None = None,
        requests: int = 0,
        prompt_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Add to the count of a key. Keys of the gateway's own settings have no id, and are ignored."""
        if key:
            minute = int(now - now % MINUTE_SECONDS)
            counted = self._counts.setdefault((key, minute, refusal), [0, 0, 0])
            counted[0] += requests
            counted[1] += prompt_tokens
            counted[2] += output_tokens

    def take(self, now: float, *, final: bool = False) -> tuple[KeyUse, ...]:
        """Return and remove the counts. Return an empty tuple if the last call was less than TAKE_SECONDS ago, unless
        this call is `final`.
        """
        if not final and 0 <= now - self._taken_at < TAKE_SECONDS:
            return ()
        self._taken_at = now
        taken, self._counts = self._counts, {}
        return tuple(
            KeyUse(key=key, minute=minute, refusal=refusal, requests=requests, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
            for (key, minute, refusal), (requests, prompt_tokens, output_tokens) in taken.items()
        )
