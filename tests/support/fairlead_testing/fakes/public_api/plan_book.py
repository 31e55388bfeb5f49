"""The fake public API's plans: made with an effect, kept by id, their targets beside them."""

from collections.abc import Callable
from datetime import datetime, timedelta

from fairlead_client.resources.plans import Plan, PlanEffect, PlanKind, PlanState
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.fakes.public_data.world import World


class PlanBook:
    """Plans over a world; `applied` lists what was carried out, in order."""

    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self.world = world
        self.clock = clock
        self.plans: dict[str, Plan] = {}
        self.targets: dict[str, int] = {}
        self.applied: list[str] = []

    def make(self, pool: str, replicas: int, who: str, undo_of: str | None = None) -> Plan:
        """A new open plan; more than two instances fewer, or none left, is heavy."""
        before, names = self.world.desired[pool], INSTANCES[pool]
        removed = max(0, before - replicas)
        heavy = replicas == 0 or removed > 2
        plan = Plan(
            id=f"p-{len(self.plans) + 1:04d}",
            pool=pool,
            kind=PlanKind.SCALE,
            created_at=self.clock(),
            created_by=who,
            expires_at=self.clock() + timedelta(minutes=10),
            state=PlanState.OPEN,
            diff=[{"op": "replace", "path": "/spec/replicas", "before": before, "after": replicas}] if before != replicas else [],
            effect=PlanEffect(
                instances_added=max(0, replicas - before),
                instances_removed=removed,
                victims=names[len(names) - removed :] if removed else [],
                sessions_moved=removed * 14 if replicas else 0,
                sessions_lost=0 if replicas else removed * 14,
                prediction_basis="from the last 5 minutes: 14.2 requests/s",
                cache_tokens_lost=removed * 310_000,
                predicted_attainment=0.91 if removed else 0.97,
                warnings=["More than 10 % of sessions move; their next prompts are computed again."] if heavy else [],
                heavy=heavy,
            ),
            owner=self.world.owner[pool],
            patch=f"spec:\n  replicas: {replicas}\n",
            undo_of=undo_of,
        )
        self.plans[plan.id], self.targets[plan.id] = plan, replicas
        return plan
