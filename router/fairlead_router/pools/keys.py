"""The gateway's check of API keys: whether a key is valid, opens the requested pool, and is within its limits.

A key is looked up by the SHA-256 digest of the text that the client sends. The lookup need not take constant time,
because its duration shows at most the digest, from which no key can be computed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from fairlead.gateway_keys import GatewayKeyFacts, KeyRefusal
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge, KeyLimits
from fairlead_router.pools.key_use import KeyUseCounts
from fairlead_router.pools.pool import Pool
from fairlead_router.protocols.refusals import BadRequest, Headers

logger = logging.getLogger(__name__)

Shown = Iterable[tuple[bytes, bytes]]


class GatewayKey:
    """One API key, and the amounts that its limits still allow at this router."""

    __slots__ = ("body_bytes", "facts", "limits")

    def __init__(self, facts: GatewayKeyFacts, now: float, routers: int = 1) -> None:
        self.facts = facts
        self.limits = KeyLimits(facts, now, routers)
        self.body_bytes = 0
        """Bytes that the bodies of requests with this key take at this router now."""

    @property
    def is_shared(self) -> bool:
        """Whether the key is from the gateway's own settings."""
        return not self.facts.id

    def goes_on_as(self, facts: GatewayKeyFacts) -> bool:
        """Use the new facts and keep the remaining amounts of the limits, if only the end of the key's budget has
        changed. Otherwise change nothing and return False.
        """
        if replace(self.facts, budget_ends_at=facts.budget_ends_at) != facts:
            return False
        self.facts = facts
        return True

    def opens(self, pool: Pool, name: str | None = None, /) -> bool:
        """Return whether the key gives access to the pool. With a `name`, return whether it gives access to this model
        or adapter of the pool. A key for certain models gives access only to the adapters that it names.
        """
        names = (pool.table.model, *pool.table.adapters) if name is None else (name,)
        return any(self.facts.opens(pool.key, one) for one in names)

    def has_expired(self, now: float) -> bool:
        """Return whether the key has expired. `now` is the time of the control API's clock."""
        return self.facts.expires_at is not None and self.facts.expires_at <= now

    def over_limit(self, now: float, api_ahead: float = 0.0) -> tuple[KeyRefusal, float] | None:
        """Return the exhausted limit or budget, and the seconds until it is available again. If nothing is exhausted,
        take one request from the request limit and return None. `api_ahead`: seconds by which the API's clock is ahead.

        Tokens are only checked here, so that no body is read in vain. `GatewayKeys.reserve` takes them.
        """
        ends = self.facts.budget_ends_at
        if ends is not None and ends > now + api_ahead:
            return KeyRefusal.OVER_BUDGET, ends - now - api_ahead
        if seconds := self.limits.seconds_to_token(now):
            return KeyRefusal.OVER_TOKENS, seconds
        if seconds := self.limits.take_request(now):
            return KeyRefusal.OVER_REQUESTS, seconds
        return None


class GatewayKeys:
    """All keys of this gateway: the keys from the control API, and `shared`, the keys in the gateway's own settings. A
    shared key gives access to everything without limits. `required`: whether a client needs a valid key. If not, a
    client without a valid key is served anonymously; the limits of a valid key apply in any case.
    """

    def __init__(self, shared: Collection[str], metrics: RouterMetrics, *, required: bool) -> None:
        self.required = required or bool(shared)
        self._metrics = metrics
        self._shared = {
            digest: GatewayKey(GatewayKeyFacts(id="", digest=digest.hex()), 0.0)
            for digest in (sha256(secret.encode()).digest() for secret in shared)
        }
        self._by_digest: Mapping[bytes, GatewayKey] = self._shared
        self._are_read = False
        self._routers = 1
        self._api_ahead = 0.0
        """Seconds by which the control API's clock is ahead of the router's clock. Keys expire by the API's clock."""
        self.use = KeyUseCounts()

    def know_routers(self, count: int, now: float) -> None:
        """Divide the keys' limits among the live routers. `count`: the number of live routers that the control API last
        reported.
        """
        if max(1, count) != self._routers:
            self._routers = max(1, count)
            for key in self._by_digest.values():
                key.limits.share(self._routers, now)

    def know_clock(self, api_ahead: float) -> None:
        """Set the number of seconds by which the control API's clock is ahead of the router's clock."""
        self._api_ahead = api_ahead

    def replace(self, keys: Sequence[GatewayKeyFacts], now: float) -> None:
        """Replace all keys except the keys in the gateway's settings. A key whose limits have not changed keeps the
        remaining amounts of its limits.
        """
        known: dict[bytes, GatewayKey] = {}
        for facts in keys:
            try:
                digest = bytes.fromhex(facts.digest)
            except ValueError:
                logger.warning("gateway key without a digest ignored", extra={"key": facts.id})
                continue
            before = self._by_digest.get(digest)
            known[digest] = before if before is not None and before.goes_on_as(facts) else GatewayKey(facts, now, self._routers)
        self._by_digest = known | self._shared
        self._are_read = True

    def admit(self, headers: Shown, now: float, *, counted: bool) -> GatewayKey | None:
        """Return the key that the client sends in `Authorization: Bearer` or `X-Api-Key`. None for a client without a
        valid key, if keys are not required. `counted`: the request counts against the key's limits. Header names must
        be in lower case.

        Raises BadRequest: 401 without a valid key if a key is required, 429 over a limit, 503 while a key is required
        and the control API has not sent the keys yet.
        """
        if not self._by_digest and not self.required:
            return None  # what a client shows is not a key of this gateway's, so its digest need not be computed
        shown = False
        expired: GatewayKey | None = None
        for name, value in headers:
            if name == b"x-api-key":
                secret = value.strip()
            elif name == b"authorization" and value[:7].lower() == b"bearer ":
                secret = value[7:].strip()
            else:
                continue
            shown = True
            key = self._by_digest.get(sha256(secret).digest())
            if key is None:
                continue
            if key.has_expired(now + self._api_ahead):
                expired = key
                continue
            if counted and (over := key.over_limit(now, self._api_ahead)) is not None:
                raise self._too_many(key, *over, now)
            return key
        if not self.required:
            return None
        if expired is not None:
            self.use.add(expired.facts.id, now, refusal=KeyRefusal.EXPIRED, requests=1)
        raise self._unknown(shown=shown, expired=expired is not None)

    def out_of_scope(self, key: GatewayKey, now: float) -> None:
        """Count a refused request for a model or pool to which its key gives no access, and return the request to the
        key's request limit.
        """
        key.limits.return_request(now)
        self._metrics.key_refusals[KeyRefusal.OUT_OF_SCOPE.value] += 1
        self.use.add(key.facts.id, now, refusal=KeyRefusal.OUT_OF_SCOPE, requests=1)

    def sent_to_pool(self, key: GatewayKey, now: float) -> None:
        """Count a request that goes to a pool in the use of its key."""
        self.use.add(key.facts.id, now, requests=1)

    def reserve(
        self, key: GatewayKey, request: RoutingRequest, most_tokens: int, now: float, *, follows: bool = False, answers: int = 1
    ) -> Charge:
        """Count a request that goes to a pool, take the expected tokens of its prompt and responses from its key's
        token limit, and return the charge. The pool settles the charge when the request ends.

        `most_tokens`: the maximum possible number of tokens of the prompt, and of all responses. `follows`: whether the
        response is generated in the background, after the request has ended. `answers`: number of responses. Raises
        BadRequest 429 if no token is left.
        """
        answer_tokens = key.limits.expected_answer(request.max_output_tokens, answers)
        if seconds := key.limits.reserve(request.prompt_tokens, answer_tokens, now):
            raise self._too_many(key, KeyRefusal.OVER_TOKENS, seconds, now)
        self.sent_to_pool(key, now)
        return Charge(
            key.facts.id,
            key.limits,
            self.use,
            prompt_tokens=request.prompt_tokens,
            answer_tokens=answer_tokens,
            most_tokens=most_tokens,
            follows=follows,
            answers=answers,
        )

    def _unknown(self, *, shown: bool, expired: bool) -> BadRequest:
        if expired:
            return self._refused(KeyRefusal.EXPIRED, "the API key has expired; ask for a new one")
        if not shown:
            return self._refused(KeyRefusal.MISSING, "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY")
        if not self._are_read and not self._shared:
            self._metrics.key_refusals[KeyRefusal.NOT_READ.value] += 1
            message = "this router does not know the gateway's keys yet; send the request again"
            return BadRequest(503, KeyRefusal.NOT_READ.value, message, None, [(b"retry-after", b"1")])
        return self._refused(KeyRefusal.UNKNOWN, "the API key is not known to this gateway, or was revoked")

    def _refused(self, reason: KeyRefusal, message: str) -> BadRequest:
        self._metrics.key_refusals[reason.value] += 1
        headers: Headers = [(b"www-authenticate", b"Bearer"), (b"x-fairlead-rejection", reason.value.encode())]
        return BadRequest(401, "invalid_api_key", message, None, headers)

    def _too_many(self, key: GatewayKey, reason: KeyRefusal, seconds: float, now: float) -> BadRequest:
        self._metrics.key_refusals[reason.value] += 1
        self.use.add(key.facts.id, now, refusal=reason, requests=1)
        facts, after = key.facts, max(1, math.ceil(seconds))
        if reason is KeyRefusal.OVER_BUDGET:
            return self._refusing(reason, f"the API key's budget is used up; send the request again in {after} s", after)
        limit = f"{facts.tokens_per_minute} tokens" if reason is KeyRefusal.OVER_TOKENS else f"{facts.requests_per_minute} requests"
        over = f" over {self._routers} routers" if self._routers > 1 else ""
        message = f"the API key's limit of {limit} a minute{over} is used up here; send the request again in {after} s"
        return self._refusing(reason, message, after)

    def _refusing(self, reason: KeyRefusal, message: str, after: int) -> BadRequest:
        word = reason.value.encode()
        headers: Headers = [(b"x-fairlead-rejection", word), (b"x-llm-d-request-dropped-reason", word), (b"retry-after", b"%d" % after)]
        return BadRequest(429, reason.value, message, None, headers)
