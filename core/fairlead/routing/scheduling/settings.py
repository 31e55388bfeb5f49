"""Scheduler settings of the process that runs it, in contrast to those of the pool's spec."""

from dataclasses import dataclass, field

from fairlead.routing.knowledge.circuit import CircuitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`speculative_insert` believes a prompt cached from its dispatch on instead of from its first
    token. Requests are held for
    `no_instances_ttl_seconds` when nobody accepts, `held_limit` of them at most; where an instance is to come, for as
    long and as many as the pool's spec allows. Never more than `held_bytes` of them. `attempts` counts dispatches of
    one request. A process that has no use for load samples or for decisions need not pay for them.
    """

    no_instances_ttl_seconds: float = 5.0
    held_limit: int = 4096
    held_bytes: int = 256 * 1024 * 1024
    attempts: int = 3
    sweep_seconds: float = 0.25
    bindings_limit: int = 200_000
    records_limit: int = 50_000
    load_samples: bool = True
    decisions: bool = True
    speculative_insert: bool = False
    circuit: CircuitSettings = field(default_factory=CircuitSettings)
