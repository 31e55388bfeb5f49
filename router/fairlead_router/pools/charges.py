"""Charges the tokens of requests to their key's limits: reserved when a request is routed, settled when it ends."""

from __future__ import annotations

from fairlead.gateway_keys import GatewayKeyFacts, RateLimit
from fairlead_router.pools.key_use import KeyUseCounts

ANSWER_WEIGHT = 1 / 8
"""The weight of the newest response's length in the moving average over a key's responses."""


class KeyLimits:
    """The remaining requests and tokens of a key's limits at this router; the live routers divide the limits equally.

    A request is taken from the request limit when it arrives (`take_request`), its tokens from the token limit when its
    body is known (`reserve`). Checking and taking are one step, so that concurrent requests cannot exceed a limit. If
    one limit refuses a request, the other limit takes it back.
    """

    __slots__ = ("_answer_tokens", "_facts", "_promised", "_requests", "_tokens")

    def __init__(self, facts: GatewayKeyFacts, now: float, routers: int = 1) -> None:
        self._facts = facts
        self._requests = None if facts.requests_per_minute is None else RateLimit(facts.requests_per_minute / routers, now)
        self._tokens = None if facts.tokens_per_minute is None else RateLimit(facts.tokens_per_minute / routers, now)
        self._answer_tokens: float | None = None
        """The moving average of the length of the key's responses in tokens, with more weight for newer responses; None
        before the first. A request may have several.
        """
        self._promised = 0
        """Tokens reserved for responses in progress."""

    def share(self, routers: int, now: float) -> None:
        """Divide the limits by this number of routers. This router keeps its remaining amount, at most its new
        share.
        """
        facts = self._facts
        for limit, per_minute in ((self._requests, facts.requests_per_minute), (self._tokens, facts.tokens_per_minute)):
            if limit is not None and per_minute is not None:
                limit.change(per_minute / routers, now)

    def take_request(self, now: float) -> float:
        """Take one request from the limit and return 0. If no request is left, take nothing and return the seconds
        until the next one is available.
        """
        return 0.0 if self._requests is None else self._requests.take_if_any(1, now)

    def return_request(self, now: float) -> None:
        """Give back the request that `take_request` took."""
        if self._requests is not None:
            self._requests.take(-1, now)

    def seconds_to_token(self, now: float) -> float:
        """Return the seconds until a token is left; 0 if one is left now. Responses in progress may give reserved
        tokens back earlier, which the result does not include.
        """
        if self._tokens is None or not self._tokens.wait_seconds(now):
            return 0.0
        return max(1.0, self._tokens.wait_seconds(now, returning=self._promised))

    def reserve(self, prompt_tokens: int, answer_tokens: int, now: float) -> float:
        """Take the tokens of a prompt and of its expected response if at least one token is left, and return 0.
        Otherwise take nothing, give the request back to the request limit, and return the seconds until a token is
        left.
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
        maximum): the average length of the key's responses, or `most` before the first response; never more than the
        limit of a minute.
        """
        per_minute = self._facts.tokens_per_minute
        if per_minute is None:
            return 0
        expected = most if self._answer_tokens is None else self._answer_tokens
        return min(int(min(expected, most or expected) * answers), per_minute)

    def spend(self, tokens: int, promised: int, now: float) -> None:
        """Take tokens without a check; a negative number gives tokens back. `promised` is added to the tokens reserved
        for responses.
        """
        if self._tokens is not None:
            self._promised += promised
            self._tokens.take(tokens, now)

    def learn_answer(self, tokens: float) -> None:
        """Add the length of a finished response to the average."""
        before = self._answer_tokens
        self._answer_tokens = tokens if before is None else before + (tokens - before) * ANSWER_WEIGHT


class Charge:
    """The tokens that one request takes from its key's limit. The tokens reserved for its prompt and response are
    already taken.

    `most_tokens`: the largest plausible number of tokens of the prompt, and of the responses.
    `answers`: the number of responses that the request asks for.
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
        """The part of the taken tokens that is reserved for the response; 0 once the request has ended."""
        self._follows = answer_tokens if follows else 0
        """The tokens reserved for a response that is generated after its request has ended. They stay reserved until
        the response is seen; otherwise a client that never fetches the response would get it free of charge.
        """
        self._prompt = self._output = 0
        """Numbers of prompt and output tokens charged so far."""
        self.has_ended = False
        """Whether the request has ended. Its reservation lasts until then."""
        self.most_tokens = most_tokens

    def generated(self, tokens: int, now: float) -> None:
        """Charge the response's tokens while they arrive, as far as they exceed the reserved tokens."""
        more = tokens - self._answer
        if more > 0:
            self._answer += more
            self.taken += more
            self._limits.spend(more, more, now)

    def settle(self, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Record that the request has ended with these token counts, and return the unused part of its reservation. A
        second call, for a response that was generated later, charges only the difference.
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
