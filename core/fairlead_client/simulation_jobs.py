"""The messages between the control API and its simulator processes: a job and its runs go in, lines of progress come
out.

A process reads JSON lines on its standard input: first the job, then a line for each run. When the input closes, the
process ends. Every line it prints is a JobLine.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.engine_specs import SimulatedSpec
from fairlead.instances import Role
from fairlead.scaling.host_caches import HostCache
from fairlead.scaling.specs import RatioSpec, ScalingSpec
from fairlead_client.resources.engine_fits import EngineCosts
from fairlead_client.resources.simulations import EngineModel, TraceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRange:
    """The minimum and maximum number of a role's instances."""

    role: Role
    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaled:
    """The rules by which a pool changes its own instances.

    `min_replicas` and `max_replicas` hold for roles that `roles` does not name; data stored by an older API has none.
    """

    scaling: ScalingSpec
    ratio: RatioSpec
    min_replicas: int
    max_replicas: int
    roles: list[RoleRange] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """The change of a pool when half of the requests have arrived. A field that is None leaves its value unchanged.

    `role` gets `replicas` instances; new instances serve after `startup_seconds`. `drained` selects the instance to
    drain: it is the index in the list of the role's instances, ordered by the cost of removing them, cheapest first.
    `is_replaced` says whether a new instance replaces the drained instance. `autoscaled` applies from the beginning.
    """

    role: Role = Role.BOTH
    replicas: int | None = None
    drained: int | None = None
    is_replaced: bool = True
    startup_seconds: float = 0.0
    policy: str | None = None
    parameters: dict[str, Any] | None = None
    prefills_in_flight: int | None = None
    early_rejection: str | None = None
    headroom: float | None = None
    slo_ttft_seconds: float | None = None
    """The TTFT target after the change, for the pool's routers and for judging the run's requests."""
    autoscaled: Autoscaled | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job: a policy at a multiple of the recorded request rate.

    With a `change` (even an empty one), only the requests after it are measured. `seed` None = the job's seed. Seed 0
    replays the requests as recorded. A run with another seed also exchanges the start times of sessions, because the
    record is only one of many possible outcomes.
    """

    number: int
    policy: str
    parameters: dict[str, Any]
    rate: float
    seed: int | None = None
    change: PoolChange | None = None
    host_cache_tokens: int | None = None
    """Size of a cache in each instance's host memory, in tokens. If given, the run computes the additional hits of such
    a cache (`RunFigures.host_cache`) instead of a policy's figures.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTarget:
    """The pool to simulate, as described by its spec in force and by observations of its instances."""

    engine: EngineModel
    instances: int = 0
    prefill_instances: int = 0
    decode_instances: int = 0
    prefill_tokens_per_second: float
    kv_cache_tokens: int
    prefills_in_flight: int
    anchors: int
    session_ttl_seconds: float
    early_rejection: str
    headroom: float
    slo_ttft_seconds: float
    slo_tpot_seconds: float
    weights: list[float] = field(default_factory=list)
    """Weights of the instances that have keys, in order; empty = all have weight 1."""
    simulated: SimulatedSpec | None = None
    """Settings of a pool whose engines are simulated engines; `engine` then describes them."""
    fitted: EngineCosts | None = None
    """The costs of an engine fitted to the pool's requests; they replace the model's costs and the declared speed."""
    speed_source: str = ""
    """Source of the prefill speed, in words."""
    decode_step_seconds: float | None = None
    """Measured seconds per token after the first, with `decoding_instances`, for the requests that are simulated; None
    if the time was not measured, or other requests are simulated.
    """
    decode_source: str = ""
    """Source of the decode step time, in words."""
    decoding_instances: int = 0
    fit_words: str = ""
    """Source, age and error of the fitted costs, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationJob:
    """The common inputs of all runs of a simulation. `weight` is the number of real requests that each request of the
    job represents, because only a share of sessions may have been recorded. `hash_ids` may leave out the last, partial
    block.
    """

    requests: list[TraceRequest]
    weight: float
    target: SimulatedTarget
    seed: int
    tells_alone: bool = False
    """Whether `JobLine.alone` is requested."""


PARTS = 5
"""Number of parts into which the requests after a run's change are divided, once by time and once by session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFigures:
    """Figures of one part of a run's measured requests; see `RunFigures`."""

    attainment: float
    refused_share: float
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Figures of a run; see `SimulationResult`."""

    number: int
    requests_per_second: float
    requests: int
    served: int
    failed: int
    attainment: float
    refused_share: float
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p99: float | None
    tpot_p90: float | None
    hit_rate: float
    ideal_hit_rate: float
    migrations: int
    reroutes: int
    sessions_moved: int | None = None
    """Number of sessions that moved at least once after the run's change, times the number of real sessions that each
    simulated session represents; None without a change.
    """
    parts: list[PartFigures] = field(default_factory=list)
    """Figures for parts of the requests after the run's change, in order of arrival; empty without a change."""
    session_parts: list[PartFigures] = field(default_factory=list)
    """Figures for parts of the requests after the run's change, divided such that all requests of a session are in one
    part. Empty without a change, and if there are fewer sessions than parts.
    """
    host_cache: HostCache | None = None
    """The effect of a host cache; None if the run did not ask for it, and for engines whose prefix cache is not on the
    GPU.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A line of progress. It has the number of requests simulated since the previous line; a run's figures when the run
    ends; once, the job's assumptions in words; or the reason why nothing can be simulated.

    `alone` is sent once, if the job asks for it: for each request of the job, the seconds to its first token on an idle
    instance with every earlier prefix cached; None for a request larger than an engine's KV memory. No number of
    instances serves a request sooner.
    """

    done: int = 0
    figures: RunFigures | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    alone: list[float | None] = field(default_factory=list)


def encode_line(content: SimulationJob | JobRun | JobLine) -> bytes:
    """Return one line with its line break."""
    return msgspec.json.encode(content) + b"\n"


def decode_job(line: bytes) -> SimulationJob:
    """Decode a job from a line. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=SimulationJob)


def decode_run(line: bytes) -> JobRun:
    """Decode a run from a line. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=JobRun)


def decode_line(line: bytes) -> JobLine:
    """Decode a line of progress. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=JobLine)
