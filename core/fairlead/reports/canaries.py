"""Samples of the requests of a canary's step, one row per request."""

from dataclasses import dataclass

from fairlead.tables import DEFAULT_CLASS, PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySample:
    """A request that ended while its pool had a canary, in the canary's step `step`.

    `canary`: whether an instance of the new revision served the request. `session` is a hash of the session's name.
    `ttft_seconds` counts from the dispatch, because the engine is not responsible for the wait before the dispatch, and
    is None if no first token was seen. `cached_tokens` is the engine's count, None if the engine gives none;
    `hit_tokens` is the router's own estimate. `decoding` is the number of other requests that decoded on the instance
    when this request ended. A failed request has neither latencies nor tokens.
    """

    pool: PoolKey
    at: float
    step: str
    session: str
    canary: bool
    priority_class: str = DEFAULT_CLASS
    prompt_tokens: int
    hit_tokens: int = 0
    cached_tokens: int | None = None
    decoding: int = 0
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    output_tokens: int = 0
    failed: bool = False
