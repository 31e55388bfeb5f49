"""Changes the ratio between prefill and decode instances, and whether Fairlead or people set the ratio."""

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.pools import PoolSpec
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import Autoscaled, PoolChange, RoleRange


class RatioQuestion(SpecQuestion):
    """Finds the effect of changed rules for the ratio between prefill and decode instances."""

    async def effect(self, _known: Known) -> PlanEffect:
        return ratio_effect(self.after)

    def tried(self, present: Present) -> Tried:
        before = present.parsed()
        if RatioMode.AUTO not in (before.ratio.mode, self.after.ratio.mode):
            raise CannotSimulate("no instance changes its role in either mode")
        planned, present_rules = (_by_its_rules(spec, present.startup_seconds) for spec in (self.after, before))
        return Tried(as_planned=planned, as_it_is=present_rules)


RATIO_MODES: Mapping[str, str] = MappingProxyType(
    {
        RatioMode.FIXED: "The controller's moves between the roles are undone: each role returns to its declared number.",
        RatioMode.AUTO: (
            "Instances drain and change between prefill and decode automatically, one per cooldown, never the last one of a role."
        ),
        RatioMode.ADVISE: "Roles return to their declared numbers; every move that mode Auto would make is recorded with its signals.",
    }
)


def ratio_effect(after: PoolSpec) -> PlanEffect:
    """Return the effect of the new spec's mode for the ratio, which determines whether Fairlead changes the roles of
    instances.
    """
    return PlanEffect(notes=[RATIO_MODES[after.ratio.mode]])


def _by_its_rules(spec: PoolSpec, startup_seconds: float) -> PoolChange:
    if spec.ratio.mode is not RatioMode.AUTO and spec.scaling.mode is not ScalingMode.SLO:
        return PoolChange()
    rules = Autoscaled(
        scaling=spec.scaling,
        ratio=spec.ratio,
        min_replicas=min(role.min_replicas for role in spec.roles),
        max_replicas=max(role.max_replicas for role in spec.roles),
        roles=[RoleRange(role=role.name, min_replicas=role.min_replicas, max_replicas=role.max_replicas) for role in spec.roles],
    )
    return PoolChange(autoscaled=rules, startup_seconds=startup_seconds)


KIND = section_kind(PlanKind.RATIO, lambda after: RatioQuestion(after=after))
