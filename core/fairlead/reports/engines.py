"""What routers know of engines: what their pool did not expect, what their prefix caches hold, how fast they are."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.capabilities import EngineCapability
from fairlead.tables import PoolKey


class EngineTrouble(StrEnum):
    """Why an engine is not what its pool's spec says: a reason of the condition Degraded."""

    MODEL_NOT_SERVED = "ModelNotServed"
    """Its list of models lacks `spec.model`: every request for it will fail."""
    ADAPTER_NOT_SERVED = "AdapterNotServed"
    """Its list of models lacks one of `spec.adapters`: every request for that one will fail."""
    KV_USAGE_MISSING = "KvUsageMissing"
    """Its metrics have no gauge of the name that `spec.engine.metrics.kvUsage` gives."""
    KV_USAGE_IMPLAUSIBLE = "KvUsageImplausible"
    """The gauge is no share from 0 to 1."""
    BLOCK_SIZE_DIFFERS = "BlockSizeDiffers"
    """Its KV blocks have another size than those of the pool's other instances, so its KV events are not used."""
    ENGINE_SLOW = "EngineSlow"
    """It has work and has made no progress for longer than it ever should."""
    ENGINE_STALLED = "EngineStalled"
    """It has work and makes no progress, though its HTTP server answers: it gets no requests and is replaced."""


PASSING = frozenset({EngineTrouble.ENGINE_SLOW})
"""Troubles that come and go: they are shown at the instance, and make no pool Degraded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledEngine:
    """An instance whose engine a router does not find as expected, and what it found in words."""

    pool: PoolKey
    instance: str
    trouble: str
    """An `EngineTrouble`, or the word of a newer router."""
    words: str
    seconds: float = 0.0
    """For how long the router has found it, where that matters."""
    ranks: tuple[int, ...] = ()
    """The data-parallel ranks that it is of, while the engine's others are well; empty where it is of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCache:
    """What a router knows of an instance's prefix cache, and how true it was since the router met the instance.

    `state` says how far the instance's KV events are heard: `current`, `waiting` (nothing was published), `replaying`,
    `incomplete` (some are lost for good), `disconnected` or `wrong-block-size`; of several data-parallel ranks that of
    the least heard; `silent` when it publishes none, and the router goes by what it sent itself.

    `answered` requests told how many tokens of their prompt were cached; `exact` of them were believed to the token.
    `believed_tokens` and `cached_tokens` are their sums, `wrong_tokens` what belief was wrong by, request by request.
    """

    pool: PoolKey
    instance: str
    state: str
    blocks: int = 0
    lag_seconds: float | None = None
    """From the making of its newest batch of events to its arrival, by both clocks."""
    gaps: int = 0
    batches_lost: int = 0
    restarts: int = 0
    answered: int = 0
    exact: int = 0
    believed_tokens: int = 0
    cached_tokens: int = 0
    wrong_tokens: int = 0


class Quantity(StrEnum):
    """What is learnt of engines, with its unit."""

    PREFILL = "prefill-seconds-per-token"
    """Of prompt tokens that were not cached."""
    DECODE = "decode-seconds-per-token"
    """Of output tokens after the first, as one request gets them."""
    TEXT = "bytes-per-token"
    """Of prompt text."""
    KV_CACHE = "kv-cache-tokens"
    """Tokens that an engine's KV cache holds, as it told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntFigure:
    """A figure that a router learnt of a pool's engines, and how well it predicts.

    `learnt` is the mean of what was observed last, `declared` what the pool's spec says (None where it says nothing),
    both in the quantity's unit. `samples` prefills, answers or prompts taught it. Errors are mean absolute errors of
    predictions for the last few hundred of them as shares (0.1 = 10 %; of times, of their mean), each made before:
    `error` of those by what the router has learnt of all the pool's instances (for token counts those by the figure in
    use), `declared_error` of those by `declared`. `in_use` says whether the router's own predictions come from what
    was learnt.
    """

    pool: PoolKey
    instance: str | None
    """None = of all the pool's instances."""
    quantity: str
    """A `Quantity`, or the word of a newer router."""
    learnt: float
    declared: float | None
    samples: int
    error: float | None
    declared_error: float | None
    in_use: bool
    predicted: float | None = None
    """The mean of what the router went by for the last of them, and in `observed` of what it then saw, in the
    quantity's unit; None where it went by nothing."""
    observed: float | None = None
    off_seconds: float = 0.0
    """For how long `predicted`, or else `declared`, has been off by more than half (`fairlead.reports.figures_off`)."""
    value: float | None = None
    """What the router measured an instance to do, as `fairlead.capabilities` has it: tokens per second for prefills,
    else in the quantity's unit. None while too little was observed to go by. `value_samples` observations made it, the
    newest `age_seconds` ago; `p10`, `p50` and `p90` are their quantiles."""
    value_samples: int = 0
    age_seconds: float | None = None
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What was observed of one instance of a pool, for a router that begins: from its own disk or from the control API.

    Ages are those of the Unix time `at`. The prefill speed is in tokens of `counted_by` bytes each. `decode_fit` are
    the coefficients of the decode step (`fairlead.routing.knowledge.estimators`), if any were fitted. `revisions` are
    those of the instances that it was observed of; empty where that was checked otherwise.
    """

    pool: PoolKey
    uid: str
    model: str
    at: float
    counted_by: float
    known: EngineCapability
    decode_fit: tuple[float, ...] = ()
    revisions: tuple[str, ...] = ()
