"""Routers' reports about engines: differences from the pool's spec, contents of prefix caches, and measured figures
such as speeds.
"""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.capabilities import EngineCapability
from fairlead.tables import PoolKey


class EngineTrouble(StrEnum):
    """A difference between an engine and its pool's spec; also a reason of the condition Degraded."""

    MODEL_NOT_SERVED = "ModelNotServed"
    """The engine's list of models lacks `spec.model`, so every request for this model will fail."""
    ADAPTER_NOT_SERVED = "AdapterNotServed"
    """The engine's list of models lacks one of `spec.adapters`, so every request for that adapter will fail."""
    KV_USAGE_MISSING = "KvUsageMissing"
    """The engine's metrics have no gauge of the name that `spec.engine.metrics.kvUsage` gives."""
    KV_USAGE_IMPLAUSIBLE = "KvUsageImplausible"
    """The engine's gauge of KV usage is not a share from 0 to 1."""
    BLOCK_SIZE_DIFFERS = "BlockSizeDiffers"
    """The size of the engine's KV blocks differs from the size at the pool's other instances, so its KV events are not
    used.
    """
    KV_NOT_HANDED_ON = "KvNotHandedOn"
    """A router asked the engine to compute a prompt for another instance, and the response named no KV blocks to fetch.
    So sessions that leave the engine lose their caches, and decode instances compute the engine's prompts themselves.
    For a while, routers do not ask this engine again.
    """
    EVENTS_NOT_HEARD = "EventsNotHeard"
    """The engine connects to a router to publish its KV events, but no events arrive at this router."""
    PRIORITY_NOT_FOLLOWED = "PriorityNotFollowed"
    """The engine ignores or reverses the priorities that routers give it because of `spec.engine.passPriority`."""
    REPORTS_IMPLAUSIBLE = "ReportsImplausible"
    """The engine reports values that cannot be true of an engine (`fairlead.plausibility`); these values are not
    used.
    """
    ENGINE_SLOW = "EngineSlow"
    """The engine has work, but has made no progress for longer than a step should ever take."""
    ENGINE_STALLED = "EngineStalled"
    """The engine has work and makes no progress, although its HTTP server responds. Its instance gets no requests and
    is replaced.
    """

    ENGINE_ASLEEP = "EngineAsleep"
    """The engine of an instance in service sleeps. The instance gets no requests until the engine is awake."""


PASSING = frozenset({EngineTrouble.ENGINE_SLOW})
"""Troubles that come and go: they are shown on the instance's page and do not make the pool Degraded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledEngine:
    """An instance whose engine differs from the router's expectation, and the difference as a sentence."""

    pool: PoolKey
    instance: str
    trouble: str
    """An `EngineTrouble`, or the name of a trouble that only newer routers know."""
    words: str
    seconds: float = 0.0
    """Seconds since the router first saw the trouble; 0 for troubles whose duration does not matter."""
    ranks: tuple[int, ...] = ()
    """The affected data-parallel ranks, while the engine's other ranks are well; empty if all are affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCache:
    """A router's knowledge about an instance's prefix cache, and how accurate this knowledge was since the router first
    saw the instance.

    `state` says how completely the instance's KV events were received: `current`, `waiting` (none published yet),
    `replaying`, `incomplete` (some are lost permanently), `disconnected` or `wrong-block-size`. For several
    data-parallel ranks it is the worst state. It is `silent` if the instance publishes no events and the router uses
    its own history. `answered` is the number of requests that reported the cached tokens of their prompt; `exact` of
    them were predicted to the token. `believed_tokens` and `cached_tokens` are the sums of predicted and reported
    tokens, `wrong_tokens` the sum of the requests' absolute errors.
    """

    pool: PoolKey
    instance: str
    state: str
    blocks: int = 0
    lag_seconds: float | None = None
    """Seconds from the creation of the instance's newest batch of events, by the engine's clock, to the batch's
    arrival, by the router's clock.
    """
    gaps: int = 0
    batches_lost: int = 0
    restarts: int = 0
    answered: int = 0
    exact: int = 0
    believed_tokens: int = 0
    cached_tokens: int = 0
    wrong_tokens: int = 0


class Quantity(StrEnum):
    """The figures measured on engines, each with its unit."""

    PREFILL = "prefill-seconds-per-token"
    """Uncached prompt tokens per second."""
    DECODE = "decode-seconds-per-token"
    """Seconds per output token after the first, as one request sees it."""
    TEXT = "bytes-per-token"
    """Bytes of prompt text per token."""
    KV_CACHE = "kv-cache-tokens"
    """Tokens that an engine's KV cache can hold, as the engine reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntFigure:
    """A figure that a router measured on a pool's engines, and how well the figure predicts.

    `learnt` is the mean of the last observations, `declared` the value of the pool's spec (None if it declares none),
    both in the quantity's unit. `learnt` is based on `samples` prefills, answers or prompts. Errors are the mean
    absolute errors of the predictions for the last few hundred samples, each predicted before it was measured, as
    shares (0.1 = 10 %; errors of times are divided by the mean time). `error` is for predictions from the router's
    figure for all the pool's instances (for token counts, from the figure in use), `declared_error` for predictions
    from `declared`. `in_use` says whether the router's own predictions use the measured figure.
    """

    pool: PoolKey
    instance: str | None
    """The instance for which the figure was measured; None = for all of the pool's instances."""
    quantity: str
    """A `Quantity`, or the name of a quantity that only newer routers know."""
    learnt: float
    declared: float | None
    samples: int
    error: float | None
    declared_error: float | None
    in_use: bool
    predicted: float | None = None
    """For the last few hundred predictions, the mean of the figures that the router used; `observed` is the mean of the
    figures that it then saw. Both are in the quantity's unit; None if the router used no figure.
    """
    observed: float | None = None
    off_seconds: float = 0.0
    """Seconds for which the figure has been wrong by more than half (`fairlead.reports.figures_off`). The figure is
    `predicted` or, without it, `declared`.
    """
    value: float | None = None
    """The router's figure for the instance, see `fairlead.capabilities`: tokens per second for prefills, else in the
    quantity's unit. None while there are too few observations.

    The figure is based on `value_samples` observations, the newest of them `age_seconds` ago; `p10`, `p50` and `p90`
    are their quantiles.
    """
    value_samples: int = 0
    age_seconds: float | None = None
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    line: tuple[float, ...] = ()
    """The line fitted to decode steps: seconds per step, and the extra seconds per 100,000 context tokens and per 100
    requests. Empty for other quantities, and while there are too few steps. With the line, a restarted router knows the
    step time at any load, not only at the load that other routers observed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Earlier observations of one instance, for a router that starts. They come from the router's own disk or from the
    control API.

    Ages are as of the Unix time `at`. The prefill speed is in tokens of `counted_by` bytes each. `decode_fit` are the
    coefficients of the decode step (`fairlead.routing.knowledge.estimators`), if any were fitted. `revisions` are the
    pool revisions of the observed instances; empty if the caller has already checked that they match.
    """

    pool: PoolKey
    uid: str
    model: str
    at: float
    counted_by: float
    known: EngineCapability
    decode_fit: tuple[float, ...] = ()
    revisions: tuple[str, ...] = ()
