"""Changes the time for which requests of a draining instance may continue."""

from fairlead.durations import format_duration
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class DrainingQuestion(SpecQuestion):
    """Finds the effect of a changed drain timeout."""

    async def effect(self, _known: Known) -> PlanEffect:
        longest = format_duration(self.after.drain.timeout_seconds)
        return PlanEffect(notes=[f"An instance that drains waits for its requests in flight at most {longest}, even if it drains already."])

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("it changes only how long an instance that drains waits")


KIND = section_kind(PlanKind.DRAINING, lambda after: DrainingQuestion(after=after))
