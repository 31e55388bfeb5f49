"""Pools to be scaled, and measured signals of them."""

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
"""A decode step that takes 80 ms with 120 requests. At a target of 80 % of 100 ms, an instance so puts out 1,500
tokens/s.
"""


def role_signals(role: Role = Role.BOTH, **changes: Any) -> RoleSignals:
    """Return the signals of a role with four idle instances, which compute 1,000 prompt tokens a second each."""
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
    """Return signals of these roles, measured over half a minute."""
    return PoolSignals(window_seconds=30.0, age_seconds=age_seconds, roles=roles)


def declared_role(role: Role = Role.BOTH, replicas: int = 4, least: int = 1, most: int = 16) -> DeclaredRole:
    """Return a declared role of four instances with bounds of 1 and 16."""
    return DeclaredRole(role=role, replicas=replicas, min_replicas=least, max_replicas=most)


def declared_pool(*roles: DeclaredRole, scaling: ScalingSpec | None = None, ratio: RatioSpec | None = None, **changes: Any) -> Declared:
    """Return a declared pool with scaling and ratio in mode Fixed, if not given otherwise. By default it has the role
    both.
    """
    pool = Declared(
        roles=roles or (declared_role(),),
        scaling=scaling or ScalingSpec(),
        ratio=ratio or RatioSpec(),
        slo=SloFacts(),
        capacity=Capacity(prefill_speed=declared(1000.0), kv_cache_tokens=1_000_000),
    )
    return replace(pool, **changes)


def a_scaling_decision(name: str, at: float, **changes: Any) -> ScalingDecisionRecord:
    """Return a record of a decision for two more instances because of the prompts that arrive; `changes` replace
    fields.
    """
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
    """Rounds of a pool's scaling on a virtual clock.

    In pools of prefill and decode, decided instances serve at once. `coming` has the number of each role's that do not
    serve yet.
    """

    def __init__(self, pool: Declared) -> None:
        self.pool = pool
        self.memory = ScalingMemory()
        self.now = BEGIN
        self.outcomes: list[ScalingOutcome] = []
        self.coming: dict[Role, int] = {}

    def round(self, signals: PoolSignals | None, after: float = 5.0) -> ScalingOutcome:
        """Run another round `after` seconds later and return its outcome."""
        self.now += after
        self.memory, outcome = step(self.memory, self.pool, None if signals is None else self._served(signals), self.now)
        self.outcomes.append(outcome)
        return outcome

    def rounds(self, signals: PoolSignals | None, seconds: float, after: float = 5.0) -> ScalingOutcome:
        """Run rounds every `after` seconds until `seconds` have passed, and return the last outcome."""
        for _ in range(max(1, int(seconds / after))):
            outcome = self.round(signals, after)
        return outcome

    def _served(self, signals: PoolSignals) -> PoolSignals:
        decided = {role.role: role.replicas for role in self.pool.roles}
        decided |= {role.role: role.replicas for role in self.memory.roles}
        served: dict[Role, int] = {role: number - self.coming.get(role, 0) for role, number in decided.items() if role is not Role.BOTH}
        return replace(signals, roles=tuple(replace(one, serving=served.get(one.role, one.serving)) for one in signals.roles))

    def replicas(self, role: Role = Role.BOTH) -> int:
        """Return the number of instances of the role that the last round decided."""
        return self.outcomes[-1].of(role).replicas

    def history(self, role: Role = Role.BOTH) -> list[int]:
        """Return the decided numbers in order; a number that did not change is listed once."""
        numbers = [outcome.of(role).replicas for outcome in self.outcomes]
        return [one for index, one in enumerate(numbers) if index == 0 or numbers[index - 1] != one]
