"""Changes the pace at which automatic scaling adds and removes instances."""

from fairlead.durations import format_duration
from fairlead.scaling.specs import ScaleDownSpec, ScaleUpSpec, ScalingMode
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class PaceQuestion(SpecQuestion):
    """Finds the effect of a changed pace of automatic scaling."""

    async def effect(self, _known: Known) -> PlanEffect:
        scaling = self.after.scaling
        notes = [_step("grows", scaling.scale_up), _step("shrinks", scaling.scale_down)]
        if scaling.mode is ScalingMode.FIXED:
            notes.append("It has no effect now: scaling.mode is Fixed.")
        return PlanEffect(notes=notes)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("see the recorded scaling decisions (mode Advise) for its effect")


def _step(verb: str, pace: ScaleUpSpec | ScaleDownSpec) -> str:
    if not pace.instances and not pace.percent:
        return f"A role never {verb}."
    most = f"{pace.instances} or {pace.percent:g} %, whichever is larger"
    return f"A role {verb} by at most {most}, in {format_duration(pace.period_seconds)}."


KIND = section_kind(PlanKind.PACE, lambda after: PaceQuestion(after=after))
