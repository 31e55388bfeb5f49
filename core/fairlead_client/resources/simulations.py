"""What-if: policies simulated on a pool's recorded traffic, or on an uploaded trace."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

MOST_POLICIES = 8
MOST_RATES = 6
MOST_RUNS = 24
"""Maximum number of runs: policies times rates."""
MOST_REQUESTS = 60_000
"""Maximum number of requests per run; if a window holds more, the newest are used."""
MOST_SIMULATED = 720_000
"""Maximum number of requests over all runs."""
MOST_UPLOADED = 20_000
"""Maximum number of rows of an uploaded trace."""
MOST_INSTANCES = 512


class EngineModel(StrEnum):
    """The engines for which the simulator has a model. Each is named by the hardware and the language model with which
    it was measured. One further member stands for simulated engines.
    """

    DUALMAP_7B = "dualmap-910b4-qwen7b"
    DUALMAP_14B = "dualmap-910b3-qwen14b"
    MOONCAKE_70B = "mooncake-a800-llama70b"
    VLLM_8B = "vllm-h100-8b"
    SIMULATED = "simulated"


class SimulationState(StrEnum):
    """The state of a simulation. The last three states are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """A policy with its parameters, as in `spec.routing`."""

    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A request of an uploaded trace, in the fields of Mooncake's traces.

    `timestamp` is in milliseconds. `hash_ids` has an id for each 512 tokens of the prompt, the last block usually
    partial: equal ids mean equal text up to and including that block. Requests without a `session_id` belong to the
    session that their ids show.
    """

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """The inputs of a simulation.

    The first policy is the baseline with which the other policies are compared. The traffic is the requests recorded
    from `start` to `end` (RFC 3339, or now-1h), or `trace`. `rates` are multiples of the recorded rate. The simulated
    pool is the present pool, except for `replicas` (or `prefill_replicas` and `decode_replicas`). `engine` is its
    engine model, scaled so that prompts are computed at the speed that the pool declares. The same request with the
    same `seed` gives the same numbers.
    """

    policies: list[SimulatedPolicy]
    rates: list[float] = field(default_factory=lambda: [1.0])
    start: str = "now-1h"
    end: str = "now"
    trace: list[TraceRequest] | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    engine: EngineModel | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result of one policy at one rate. Shares are of all requests. Latencies are in seconds over the served
    requests; they are None if no request was served.

    `attainment` is the share of requests served within both targets of the pool's SLO. `attainment_change` is that
    share minus the share of the first policy at the same rate. `hit_rate` is the share of prompt tokens that was not
    computed, `ideal_hit_rate` the hit rate of a single unlimited cache.
    """

    policy: str
    parameters: dict[str, Any]
    rate: float
    requests_per_second: float
    requests: int
    served: int
    failed: int
    attainment: float
    attainment_change: float
    refused_share: float
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p99: float | None
    tpot_p90: float | None
    hit_rate: float
    ideal_hit_rate: float
    migrations: int
    reroutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationItem:
    """A simulation as a list shows it. `done` of `total` requests are simulated, over all runs."""

    id: str
    pool: str
    state: SimulationState
    created_at: datetime
    created_by: str
    policies: list[SimulatedPolicy]
    rates: list[float]
    seed: int
    done: int
    total: int | None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    """The reason why the simulation failed; None if it did not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(SimulationItem):
    """A simulation with its inputs and results.

    `start` and `end` are the window of the recorded traffic, None for an uploaded trace. `winner` is the index in
    `policies` of the policy with the highest attainment, averaged over the rates; ties go to the policy with the lowest
    p90 TTFT, then to the policy that was named first. `notes` describe omissions and assumptions.
    """

    start: datetime | None = None
    end: datetime | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    engine: EngineModel | None = None
    requests: int | None = None
    results: list[SimulationResult] = field(default_factory=list)
    winner: int | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPlanRequest:
    """The simulated policy for which to make a plan, by its index in the simulation's policies; None = the winner."""

    policy: int | None = None
