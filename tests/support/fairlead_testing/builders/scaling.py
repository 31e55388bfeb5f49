"""Pools to be scaled, and what was measured of them."""

from dataclasses import replace
from typing import Any

from fairlead.capabilities import declared
from fairlead.instances import Role
from fairlead.scaling.bounds import DeclaredRole
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.recommendations import Cause, Controller, Need, Verdict
from fairlead.scaling.signals import DecodeStep, PoolSignals, RoleSignals
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioSpec, ScalingSpec
from fairlead.scaling.targets import Declared, ScalingOutcome, step
from fairlead.tables import SloFacts

BEGIN = 1_800_000_000.0

IDLE_STEP = DecodeStep(fixed_seconds=0.02, seconds_per_request=0.0005, seconds_per_context_token=0.0)
"""80 ms are reached with 120 requests, so an instance puts out 1,500 tokens a second at a target of 80 % of 100 ms."""


def role_signals(role: Role = Role.BOTH, **changes: Any) -> RoleSignals:
    """Four idle instances that compute 1,000 prompt tokens a second each."""
    idle = RoleSignals(
        role=role,
        serving=4,
        in_flight=0,
        waiting=0,
        prompt_tokens_per_second=0.0,
        cached_share=0.0,
        output_tokens_per_second=0.0,
        prefill_tokens_per_second=1000.0,
        decode_step=IDLE_STEP,
        decode_context_tokens=1000.0,
        prefill_load=None if role is Role.DECODE else 0.0,
        decode_load=None if role is Role.PREFILL else 0.0,
        ttft_attainment=1.0,
        tpot_attainment=1.0,
    )
    return replace(idle, **changes)


def pool_signals(*roles: RoleSignals, age_seconds: float = 1.0) -> PoolSignals:
    """Measured over half a minute."""
    return PoolSignals(window_seconds=30.0, age_seconds=age_seconds, roles=roles)


def declared_role(role: Role = Role.BOTH, replicas: int = 4, least: int = 1, most: int = 16) -> DeclaredRole:
    """A role of four instances, between 1 and 16."""
    return DeclaredRole(role=role, replicas=replicas, min_replicas=least, max_replicas=most)


def declared_pool(*roles: DeclaredRole, scaling: ScalingSpec | None = None, ratio: RatioSpec | None = None, **changes: Any) -> Declared:
    """A pool with both modes Fixed unless told otherwise; instances of role both without roles."""
    pool = Declared(
        roles=roles or (declared_role(),),
        scaling=scaling or ScalingSpec(),
        ratio=ratio or RatioSpec(),
        slo=SloFacts(),
        capacity=Capacity(prefill_speed=declared(1000.0), kv_cache_tokens=1_000_000),
    )
    return replace(pool, **changes)


def a_scaling_decision(name: str, at: float, **changes: Any) -> ScalingDecisionRecord:
    """Two more instances, for the prompts that arrive."""
    decision = ScalingDecisionRecord(
        id=name,
        at=at,
        controller=Controller.SCALING,
        role=Role.BOTH,
        mode="SLO",
        current=2,
        recommended=4,
        replicas=4,
        verdict=Verdict.APPLIED,
        hold=None,
        cause=Cause.PROMPTS,
        lower=1,
        upper=16,
        reason="3.4 instances are needed to prefill 2720 prompt tokens/s, 0% of them cached",
        need=Need(for_prompts=3.4, for_queue=0.0, for_outputs=None, for_slow_outputs=None),
        signals=(role_signals(prompt_tokens_per_second=2720.0),),
    )
    return replace(decision, **changes)


class Rounds:
    """Rounds of a pool's scaling on a clock of their own. Of prefill and decode all instances that were decided serve,
    but for those in `coming`.
    """

    def __init__(self, pool: Declared) -> None:
        self.pool = pool
        self.memory = ScalingMemory()
        self.now = BEGIN
        self.outcomes: list[ScalingOutcome] = []
        self.coming: dict[Role, int] = {}

    def round(self, signals: PoolSignals | None, after: float = 5.0) -> ScalingOutcome:
        """One more, `after` seconds later."""
        self.now += after
        self.memory, outcome = step(self.memory, self.pool, None if signals is None else self._served(signals), self.now)
        self.outcomes.append(outcome)
        return outcome

    def rounds(self, signals: PoolSignals | None, seconds: float, after: float = 5.0) -> ScalingOutcome:
        """Rounds until so many seconds have passed; the last outcome."""
        for _ in range(max(1, int(seconds / after))):
            outcome = self.round(signals, after)
        return outcome

    def _served(self, signals: PoolSignals) -> PoolSignals:
        decided = {role.role: role.replicas for role in self.pool.roles}
        decided |= {role.role: role.replicas for role in self.memory.roles}
        served: dict[Role, int] = {role: number - self.coming.get(role, 0) for role, number in decided.items() if role is not Role.BOTH}
        return replace(signals, roles=tuple(replace(one, serving=served.get(one.role, one.serving)) for one in signals.roles))

    def replicas(self, role: Role = Role.BOTH) -> int:
        """The number decided last."""
        return self.outcomes[-1].of(role).replicas

    def history(self, role: Role = Role.BOTH) -> list[int]:
        """Numbers decided, one after the other, each once."""
        numbers = [outcome.of(role).replicas for outcome in self.outcomes]
        return [one for index, one in enumerate(numbers) if index == 0 or numbers[index - 1] != one]
