"""What the requests of a step of a canary were like, one row a request."""

from dataclasses import dataclass

from fairlead.tables import DEFAULT_CLASS, PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySample:
    """A request of a session that ended while its pool had a canary, in the step `step` of that.

    `canary`: whether an instance of the new revision served it. `session` is a hash of its name. `ttft_seconds` counts
    from the dispatch, since the wait before it is not the engine's, and is None where no first token was seen;
    `cached_tokens` is the engine's count, None where it gives none, and `hit_tokens` what the router reckoned with.
    `decoding` is the number of other requests that decoded on the instance when this one ended. A failed request has
    neither latencies nor tokens.
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
