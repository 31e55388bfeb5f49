"""Reads the token counts that engines report in an answer or its events, in the format of each protocol."""

from __future__ import annotations

from typing import Any, NamedTuple

_MOST_TOKENS = 1_000_000_000
"""Maximum plausible token count; a larger count is treated as missing."""


class Usage(NamedTuple):
    """The token counts of a request. A count of the prompt that the engine did not report is None."""

    output_tokens: int = 0
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    """Number of all tokens of the prompt, cached or not."""


_OUTPUT = ("completion_tokens", "output_tokens")
_PROMPT = ("prompt_tokens", "input_tokens")
_CACHED = "cached_tokens"
_CACHE_READ, _CACHE_WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_COUNTS = frozenset((*_OUTPUT, *_PROMPT, _CACHE_READ, _CACHE_WRITTEN))


class Figures:
    """The newest value of each token count that one answer has reported. Anthropic's streams divide the counts between
    two events. A number of output tokens is not replaced by a later zero, because it cannot fall.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def output_tokens(self) -> int | None:
        """The newest number of output tokens; None if no number was reported."""
        return self._counts.get("completion_tokens", self._counts.get("output_tokens"))

    def take(self, usage: Any) -> bool:
        """Take the plausible counts of a usage object. Return whether it has the number of output tokens."""
        return _take(usage, self._counts)

    def usage(self, output_tokens: int | None = None) -> Usage:
        """Return the known counts. `output_tokens` is used instead of the engine's own count; None = the engine's own
        count.
        """
        return _usage(self._counts, output_tokens)


_OF_CHATS = frozenset(("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"))


def read_usage(usage: Any) -> Usage | None:
    """Return the token counts of a usage object; None if it has no counts."""
    if type(usage) is dict and usage.keys() <= _OF_CHATS and not usage.get("prompt_tokens_details"):  # as of nearly every answer
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if type(prompt) is int and type(output) is int and 0 <= prompt <= _MOST_TOKENS and 0 <= output <= _MOST_TOKENS:
            return Usage(output, None, prompt)
    counts: dict[str, int] = {}
    _take(usage, counts)
    return _usage(counts, None) if counts else None


def _take(usage: Any, into: dict[str, int]) -> bool:
    if not isinstance(usage, dict):
        return False
    counts_output = False
    for name, value in usage.items():
        if name in _COUNTS and type(value) is int and 0 <= value <= _MOST_TOKENS:  # `type`, as a bool is not a count
            if name in _OUTPUT:
                counts_output = True
                value = value or into.get(name, 0)
            into[name] = value
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    if details and isinstance(details, dict) and type(cached := details.get(_CACHED)) is int and 0 <= cached <= _MOST_TOKENS:
        into[_CACHED] = cached
    return counts_output


def _usage(counts: dict[str, int], output_tokens: int | None) -> Usage:
    output = counts.get("completion_tokens", counts.get("output_tokens")) if output_tokens is None else output_tokens
    if "input_tokens" not in counts:
        return Usage(output or 0, counts.get(_CACHED, counts.get(_CACHE_READ)), counts.get("prompt_tokens"))
    prompt: int | None = counts.get("prompt_tokens", counts["input_tokens"])
    read, written = counts.get(_CACHE_READ), counts.get(_CACHE_WRITTEN)
    if _CACHED not in counts and prompt is not None:
        prompt += (read or 0) + (written or 0)  # Anthropic's input_tokens leave out what is read from or written to a cache
    return Usage(output or 0, counts.get(_CACHED, read), prompt)
