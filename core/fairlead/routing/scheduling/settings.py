"""Settings that a process gives to its schedulers. They are independent of the settings in a pool's spec."""

from dataclasses import dataclass, field

from fairlead.routing.knowledge.circuit import CircuitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Settings of a scheduler. While no instance accepts requests, at most `held_limit` requests are held, for up to
    `no_instances_ttl_seconds`. If an instance is expected to start, the pool's spec sets both limits instead. The
    bodies of held requests never exceed `held_bytes`. `attempts` is the maximum number of dispatches of one request. A
    process that does not need load samples or decisions can turn them off to save time.
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
    circuit: CircuitSettings = field(default_factory=CircuitSettings)
