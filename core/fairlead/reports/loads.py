"""The load of instances, second by second and right now."""

from dataclasses import dataclass

from fairlead.tables import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """The load of one instance, or of one of its data-parallel ranks, in one second as this router saw it.

    Counts cover that second; gauges hold its last value. `ttft_seconds` and `tpot_seconds` hold the latencies of all
    first tokens and of all finished requests in the second, or a uniform sample of 64 of them, so that percentiles can
    be computed over several routers and longer times. `kv_usage` (0-1) comes from the engine's metrics, None if
    unknown.

    A request is judged by the SLO when it is finished and its first token was seen: it is within the SLO if its TTFT
    and its TPOT were in time (a response of one token has no TPOT). A request that its client cancelled is judged by
    the tokens that the client had received; it counts as late if the TTFT target had passed without a first token.
    `prefilled_tokens` are the uncached tokens of the prompts whose computation ended in the second.
    `prefilling_seconds` is the time since the instance's last sample in which at least one prompt was being computed.
    `generated_tokens` are the output tokens that arrived in the second, including tokens of unfinished responses; if a
    stream does not show its tokens, all of them count when it ends. An older router does not report the last seven
    fields; they are then None, which does not mean zero.
    """

    pool: PoolKey
    instance: str
    second: int
    running: int
    waiting: int
    pending_prefill_tokens: int
    in_flight: int
    kv_usage: float | None = None
    requests: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    ttft_seconds: tuple[float, ...] = ()
    tpot_seconds: tuple[float, ...] = ()
    ttft_within_slo: int = 0
    ttft_total: int = 0
    tpot_within_slo: int | None = None
    tpot_total: int | None = None
    within_slo: int | None = None
    judged_by_slo: int | None = None
    prefilled_tokens: int | None = None
    prefilling_seconds: float | None = None
    generated_tokens: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDemand:
    """Requests that wait for a pool to have an instance: their number, their prompt tokens and the bytes of their
    bodies.
    """

    requests: int = 0
    prompt_tokens: int = 0
    body_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """This router's current use of a pool: the number of requests that it holds, and the seconds since the pool's last
    request at this router ended (0 while it has requests).
    """

    pool: PoolKey
    held_requests: int
    held_prompt_tokens: int
    idle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInFlight:
    """Requests this router has queued for or dispatched to an instance right now; `waiting` of them are queued."""

    pool: PoolKey
    instance: str
    in_flight: int
    waiting: int
