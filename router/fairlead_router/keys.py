"""The gateway's check of API keys: who asks, whether the key opens what is asked for, and whether it is within its
limits.

A key is looked up by the SHA-256 of what the client shows. A lookup takes a time that depends on the digest, from
which nobody can compute a key, so it need not take constant time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256

from fairlead.gateway_keys import GatewayKeyFacts, KeyRefusal, RateLimit
from fairlead_router.answers import Usage
from fairlead_router.key_use import KeyUseCounts
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pool import Pool
from fairlead_router.refusals import BadRequest, Headers

logger = logging.getLogger(__name__)

Shown = Iterable[tuple[bytes, bytes]]


class GatewayKey:
    """One key and what is left of its limits at this router; each live router has an equal share of them."""

    __slots__ = ("_requests", "_tokens", "facts")

    def __init__(self, facts: GatewayKeyFacts, now: float, routers: int = 1) -> None:
        self.facts = facts
        self._requests = None if facts.requests_per_minute is None else RateLimit(facts.requests_per_minute / routers, now)
        self._tokens = None if facts.tokens_per_minute is None else RateLimit(facts.tokens_per_minute / routers, now)

    def share(self, routers: int, now: float) -> None:
        """Divide the limits by this many routers. What is left at this one stays, as far as its new share allows it."""
        for limit, per_minute in ((self._requests, self.facts.requests_per_minute), (self._tokens, self.facts.tokens_per_minute)):
            if limit is not None and per_minute is not None:
                limit.change(per_minute / routers, now)

    @property
    def is_shared(self) -> bool:
        """Whether it is of the gateway's own settings."""
        return not self.facts.id

    def opens(self, pool: Pool, name: str | None = None, /) -> bool:
        """Whether the key opens the pool, or with a name that model or adapter of it. A key for models opens an adapter
        only if it names it.
        """
        names = (pool.table.model, *pool.table.adapters) if name is None else (name,)
        return any(self.facts.opens(pool.key, one) for one in names)

    def has_expired(self, now: float) -> bool:
        """Whether the key's time is over."""
        return self.facts.expires_at is not None and self.facts.expires_at <= now

    def over_limit(self, now: float) -> tuple[KeyRefusal, float] | None:
        """The limit that is used up, with the seconds until it is not; None after taking one request."""
        if self._tokens is not None and (seconds := self._tokens.wait_seconds(now)):
            return KeyRefusal.OVER_TOKENS, seconds
        if self._requests is not None:
            if seconds := self._requests.wait_seconds(now):
                return KeyRefusal.OVER_REQUESTS, seconds
            self._requests.take(1, now)
        return None

    def spend(self, tokens: int, now: float) -> None:
        """Take tokens from the limit, or give back a negative number."""
        if self._tokens is not None and tokens:
            self._tokens.take(tokens, now)


class GatewayKeys:
    """All keys of this gateway: those that the control API sends, and `shared`, the secrets of its own settings, which
    open everything without limits.

    If keys are not `required`, a client without a valid key is served as nobody; who shows one is held to it.
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
        self.use = KeyUseCounts()

    def know_routers(self, count: int, now: float) -> None:
        """Share limits with the other live routers; `count` is all of them, as the API told last."""
        if max(1, count) != self._routers:
            self._routers = max(1, count)
            for key in self._by_digest.values():
                key.share(self._routers, now)

    def replace(self, keys: Sequence[GatewayKeyFacts], now: float) -> None:
        """Know exactly these keys, besides the settings' own. An unchanged one keeps what is left of its limits."""
        known: dict[bytes, GatewayKey] = {}
        for facts in keys:
            try:
                digest = bytes.fromhex(facts.digest)
            except ValueError:
                logger.warning("gateway key without a digest ignored", extra={"key": facts.id})
                continue
            before = self._by_digest.get(digest)
            known[digest] = before if before is not None and before.facts == facts else GatewayKey(facts, now, self._routers)
        self._by_digest = known | self._shared
        self._are_read = True

    def admit(self, headers: Shown, now: float, *, counted: bool) -> GatewayKey | None:
        """The key of `Authorization: Bearer` or `X-Api-Key`; None for nobody, where nobody is served too.

        With `counted` the request counts against the key's limits. Header names must be lower case. Raises BadRequest:
        401 without a valid key where one is required, 429 over a limit, 503 while the keys are not known yet.
        """
        if not self._by_digest and not self.required:
            return None  # what a client shows is no key of this gateway's, so its digest need not be computed
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
            if key.has_expired(now):
                expired = key
                continue
            if counted and (over := key.over_limit(now)) is not None:
                raise self._too_many(key, *over, now)
            return key
        if not self.required:
            return None
        if expired is not None:
            self.use.add(expired.facts.id, now, refusal=KeyRefusal.EXPIRED, requests=1)
        raise self._unknown(shown=shown, expired=expired is not None)

    def out_of_scope(self, key: GatewayKey, now: float) -> None:
        """Count a request for what its key does not open."""
        self._metrics.key_refusals[KeyRefusal.OUT_OF_SCOPE.value] += 1
        self.use.add(key.facts.id, now, refusal=KeyRefusal.OUT_OF_SCOPE, requests=1)

    def sent_to_pool(self, key: GatewayKey, now: float) -> None:
        """Count a request that its key opens a pool for."""
        self.use.add(key.facts.id, now, requests=1)

    def settle(self, key: GatewayKey, usage: Usage | None, taken: int, now: float) -> None:
        """Count the tokens of a call that ended, None where no engine worked for it, and put right what was `taken`
        of the limit for its prompt.
        """
        prompt_tokens, output_tokens = (0, 0) if usage is None else (usage.prompt_tokens or 0, usage.output_tokens)
        key.spend(prompt_tokens + output_tokens - taken, now)
        if prompt_tokens or output_tokens:
            self.use.add(key.facts.id, now, prompt_tokens=prompt_tokens, output_tokens=output_tokens)

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
        limit = f"{facts.tokens_per_minute} tokens" if reason is KeyRefusal.OVER_TOKENS else f"{facts.requests_per_minute} requests"
        over = f" over {self._routers} routers" if self._routers > 1 else ""
        message = f"the API key's limit of {limit} a minute{over} is used up here; send the request again in {after} s"
        word = reason.value.encode()
        headers: Headers = [(b"x-fairlead-rejection", word), (b"x-llm-d-request-dropped-reason", word), (b"retry-after", b"%d" % after)]
        return BadRequest(429, reason.value, message, None, headers)
