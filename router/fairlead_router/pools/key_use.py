"""Counts what each gateway key was used for, until the collector takes the counts for a report."""

from __future__ import annotations

from fairlead.gateway_keys import MINUTE_SECONDS, KeyRefusal
from fairlead.reports.key_use import KeyUse

TAKE_SECONDS = 1.0
"""Seconds between two takes of the counts: a key costs at most one record per second, and a killed router loses no more
than this.
"""

Counted = tuple[str, int, KeyRefusal | None]
"""Key of a count: the gateway key's id, the minute's start, and the reason of a refusal."""


class KeyUseCounts:
    """Counts since the last take, by key, minute and refusal. Because they are taken every second, there is usually one
    per key and outcome.
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
        """Count a use; keys of the gateway's own settings have no id and are ignored."""
        if key:
            minute = int(now - now % MINUTE_SECONDS)
            counted = self._counts.setdefault((key, minute, refusal), [0, 0, 0])
            counted[0] += requests
            counted[1] += prompt_tokens
            counted[2] += output_tokens

    def take(self, now: float, *, final: bool = False) -> tuple[KeyUse, ...]:
        """Return the counts since the last call; empty until a second has passed, unless this is the `final` call."""
        if not final and 0 <= now - self._taken_at < TAKE_SECONDS:
            return ()
        self._taken_at = now
        taken, self._counts = self._counts, {}
        return tuple(
            KeyUse(key=key, minute=minute, refusal=refusal, requests=requests, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
            for (key, minute, refusal), (requests, prompt_tokens, output_tokens) in taken.items()
        )
