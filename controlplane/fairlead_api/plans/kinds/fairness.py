"""Changes whether the tenants of a pool share its instances fairly."""

from fairlead.tables import FAIR_TENANTS
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class FairnessQuestion(SpecQuestion):
    """Finds the effect of a changed order of waiting requests."""

    async def effect(self, _known: Known) -> PlanEffect:
        fair = self.after.routing.fairness == FAIR_TENANTS
        order = (
            "requests of the tenant that has had less of the instance's time go first"
            if fair
            else "they go in one order, whoever sent them"
        )
        return PlanEffect(notes=[f"Waiting requests of a priority class: {order}. No session moves."])

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("recorded requests do not say which tenant sent them")


KIND = section_kind(PlanKind.FAIRNESS, lambda after: FairnessQuestion(after=after))
