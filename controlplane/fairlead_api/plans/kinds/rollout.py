"""Pauses or resumes a rollout, or changes how many instances it replaces at a time."""

from fairlead.instances import NOT_COUNTED
from fairlead.rollout_specs import RolloutSpec
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class RolloutQuestion(SpecQuestion):
    """Finds the effect of changed rules for rollouts."""

    async def effect(self, known: Known) -> PlanEffect:
        return rollout_effect(known.use, self.after.rollout)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("another pace of a rollout changes neither the policy nor the number of instances")


def rollout_effect(pool: PoolUse, rollout: RolloutSpec) -> PlanEffect:
    """Return the effect of the new rules on the present rollout."""
    if rollout.paused:
        return PlanEffect(notes=["Outdated instances stay; a lost one is replaced with the template it had."])
    present: list[InstanceUse] = [use for use in pool.instances if use.state not in NOT_COUNTED]
    words = f"at most {rollout.max_surge} above the desired number and {rollout.max_unavailable} missing"
    return PlanEffect(notes=[f"Outdated instances among the {len(present)} are replaced, {words} at a time; a stopped rollout continues."])


KIND = section_kind(PlanKind.ROLLOUT, lambda after: RolloutQuestion(after=after))
