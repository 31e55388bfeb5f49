"""What the control API and the processes that simulate for it tell each other: a job in, lines of progress out.

The job is one line of JSON on the process's standard input, which stays open: when it closes, the process ends. Every
line it prints is a JobLine.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead_client.resources.simulations import EngineModel, TraceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job: a policy at a multiple of the rate at which the requests came."""

    number: int
    policy: str
    parameters: dict[str, Any]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTarget:
    """The pool to simulate, as its spec in force says."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationJob:
    """Runs over the same requests. `weight` is how many requests each stands for, as only a share of sessions may have
    been recorded; `hash_ids` may leave out the last, partial block.
    """

    requests: list[TraceRequest]
    weight: float
    target: SimulatedTarget
    runs: list[JobRun]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What came of a run; see `SimulationResult`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """Requests simulated since the line before; a run's figures when it ends; once what the job assumes, in words; or
    why nothing can be simulated.
    """

    done: int = 0
    figures: RunFigures | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None


def encode_line(content: SimulationJob | JobLine) -> bytes:
    """One line, its end included."""
    return msgspec.json.encode(content) + b"\n"


def decode_job(line: bytes) -> SimulationJob:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=SimulationJob)


def decode_line(line: bytes) -> JobLine:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=JobLine)
