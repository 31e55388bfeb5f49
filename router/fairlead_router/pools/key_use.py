"""Counts the use of each gateway key, until the counts are taken for a report."""

from __future__ import annotations

from fairlead.gateway_keys import MINUTE_SECONDS, KeyRefusal
from fairlead.reports.key_use import KeyUse

TAKE_SECONDS = 1.0
"""Seconds between two times at which the counts are taken. So a key causes at most one record per second, and a killed
router loses the counts of one second.
"""

Counted = tuple[str, int, KeyRefusal | None]
"""Identifies a count: the gateway key's id, the start of the minute, and the reason if requests were refused."""


class KeyUseCounts:
    """Numbers of requests since the last `take`, by key, minute and refusal. A key usually has one count for each of
    its outcomes, because the counts are taken every second.
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
        """Add a key's use to its count. Keys of the gateway's own settings have no id and are ignored."""
        if key:
            minute = int(now - now % MINUTE_SECONDS)
            counted = self._counts.setdefault((key, minute, refusal), [0, 0, 0])
            counted[0] += requests
            counted[1] += prompt_tokens
            counted[2] += output_tokens

    def take(self, now: float, *, final: bool = False) -> tuple[KeyUse, ...]:
        """Return and remove the counts; empty if the last call was less than TAKE_SECONDS ago, unless this is the
        `final` call.
        """
        if not final and 0 <= now - self._taken_at < TAKE_SECONDS:
            return ()
        self._taken_at = now
        taken, self._counts = self._counts, {}
        return tuple(
            KeyUse(key=key, minute=minute, refusal=refusal, requests=requests, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
            for (key, minute, refusal), (requests, prompt_tokens, output_tokens) in taken.items()
        )
