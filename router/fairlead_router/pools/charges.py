"""Charges the tokens of requests to the limits of their keys. Tokens are reserved when a request is routed, and settled
when it ends.
"""

from __future__ import annotations

from fairlead.gateway_keys import GatewayKeyFacts, RateLimit
from fairlead_router.pools.key_use import KeyUseCounts

ANSWER_WEIGHT = 1 / 8
"""The weight of the newest response's length in the moving average of a key's response lengths."""


class KeyLimits:
    """The requests and tokens that a key's limits still allow at this router. The live routers share each limit
    equally.

    A request is taken from the request limit when it arrives (`take_request`). Its tokens are taken from the token
    limit when its body is known (`reserve`). A limit is checked and reduced in one step, so that concurrent requests
    cannot exceed it. If the token limit refuses a request, the request limit gets the request back.
    """

    __slots__ = ("_answer_tokens", "_facts", "_promised", "_requests", "_tokens")

    def __init__(self, facts: GatewayKeyFacts, now: float, routers: int = 1) -> None:
        self._facts = facts
        self._requests = None if facts.requests_per_minute is None else RateLimit(facts.requests_per_minute / routers, now)
        self._tokens = None if facts.tokens_per_minute is None else RateLimit(facts.tokens_per_minute / routers, now)
        self._answer_tokens: float | None = None
        """The moving average of the lengths of the key's responses, in tokens; newer responses have more weight. None
        before the first response.
        """
        self._promised = 0
        """Number of tokens reserved for responses in progress."""

    def share(self, routers: int, now: float) -> None:
        """Divide the limits by this number of routers. This router keeps the amounts that it has left, up to its new
        share.
        """
        facts = self._facts
        for limit, per_minute in ((self._requests, facts.requests_per_minute), (self._tokens, facts.tokens_per_minute)):
            if limit is not None and per_minute is not None:
                limit.change(per_minute / routers, now)

    def take_request(self, now: float) -> float:
        """Take one request from the request limit and return 0. If no request is left, take nothing and return the
        seconds until the next one is available.
        """
        return 0.0 if self._requests is None else self._requests.take_if_any(1, now)

    def return_request(self, now: float) -> None:
        """Return the request that `take_request` took to the request limit."""
        if self._requests is not None:
            self._requests.take(-1, now)

    def seconds_to_token(self, now: float) -> float:
        """Return the seconds until a token is left; 0 if one is left now. The reserved tokens of responses in progress
        are assumed to be returned now, so the real time may be longer.
        """
        if self._tokens is None or not self._tokens.wait_seconds(now):
            return 0.0
        return max(1.0, self._tokens.wait_seconds(now, returning=self._promised))

    def reserve(self, prompt_tokens: int, answer_tokens: int, now: float) -> float:
        """Take the tokens of a prompt and of its expected responses from the token limit, and return 0. If no token is
        left, take nothing, return the request to the request limit, and return the seconds until a token is left.
        """
        if self._tokens is None:
            return 0.0
        if self._tokens.take_if_any(prompt_tokens + answer_tokens, now):
            self.return_request(now)
            return self.seconds_to_token(now)
        self._promised += answer_tokens
        return 0.0

    def expected_answer(self, most: int, answers: int = 1) -> int:
        """Return the number of tokens to reserve for this number of responses, each of at most `most` tokens (0 = no
        maximum).

        For each response it is the average length of the key's responses, or `most` before the first response. The sum
        is at most the tokens per minute of the limit. Return 0 if the key has no token limit.
        """
        per_minute = self._facts.tokens_per_minute
        if per_minute is None:
            return 0
        expected = most if self._answer_tokens is None else self._answer_tokens
        return min(int(min(expected, most or expected) * answers), per_minute)

    def spend(self, tokens: int, promised: int, now: float) -> None:
        """Take tokens from the token limit without a check; a negative number returns tokens. `promised` is added to
        the number of tokens reserved for responses.
        """
        if self._tokens is not None:
            self._promised += promised
            self._tokens.take(tokens, now)

    def learn_answer(self, tokens: float) -> None:
        """Add the length of a finished response to the moving average."""
        before = self._answer_tokens
        self._answer_tokens = tokens if before is None else before + (tokens - before) * ANSWER_WEIGHT


class Charge:
    """The tokens that one request takes from its key's token limit. The tokens reserved for its prompt and responses
    are taken already.

    `most_tokens`: the maximum plausible number of tokens of the prompt, and of all responses together. `answers`: the
    number of responses that the request asks for.
    """

    __slots__ = ("_answer", "_follows", "_key", "_limits", "_output", "_prompt", "_use", "answers", "has_ended", "most_tokens", "taken")

    def __init__(
        self,
        key: str,
        limits: KeyLimits,
        use: KeyUseCounts,
        *,
        prompt_tokens: int,
        answer_tokens: int,
        most_tokens: int,
        follows: bool = False,
        answers: int = 1,
    ) -> None:
        self._key = key
        self.answers = answers
        self._limits = limits
        self._use = use
        self.taken = prompt_tokens + answer_tokens
        """Number of tokens taken from the limit so far."""
        self._answer = answer_tokens
        """Number of the taken tokens that are reserved for the responses; 0 once the request has ended."""
        self._follows = answer_tokens if follows else 0
        """Number of tokens reserved for a response that is generated after its request has ended. They stay reserved
        until the response is seen. Otherwise a client that never fetches the response would get it free of charge.
        """
        self._prompt = self._output = 0
        """Number of prompt tokens and of output tokens charged so far."""
        self.has_ended = False
        """Whether the request has ended. Its tokens are reserved until then."""
        self.most_tokens = most_tokens

    def generated(self, tokens: int, now: float) -> None:
        """Take the tokens of the responses while they arrive, as far as they exceed the reserved tokens."""
        more = tokens - self._answer
        if more > 0:
            self._answer += more
            self.taken += more
            self._limits.spend(more, more, now)

    def settle(self, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Charge these token counts, because the request has ended, and return the unused part of the reservation to
        the limit. A second call, for a response that was generated later, charges only the difference.
        """
        self.has_ended = True
        more_prompt, more_output = max(0, prompt_tokens - self._prompt), max(0, output_tokens - self._output)
        self._prompt += more_prompt
        self._output += more_output
        total = self._prompt + self._output + (self._follows if self._prompt and not self._output else 0)
        self._limits.spend(total - self.taken, -self._answer, now)
        self.taken, self._answer = total, 0
        if more_output:
            self._limits.learn_answer(self._output / self.answers)
        if more_prompt or more_output:
            self._use.add(self._key, now, prompt_tokens=more_prompt, output_tokens=more_output)
