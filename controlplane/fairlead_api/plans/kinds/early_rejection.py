"""Changes the early rejection of requests that would miss their objectives."""

from fairlead.amounts import amount
from fairlead.percentages import percentage
from fairlead.tables import EarlyRejectionFacts
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import Replay
from fairlead_api.plans.questions import Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import PoolChange


class EarlyRejectionQuestion(SpecQuestion):
    """Finds the effect of a changed rule for early rejection."""

    async def effect(self, known: Known) -> PlanEffect:
        facts = self.after.facts()
        return rejection_effect(facts.early_rejection, await known.refused(facts))

    def tried(self, _present: Present) -> Tried:
        rejection = self.after.facts().early_rejection
        return Tried(as_planned=PoolChange(early_rejection=rejection.mode, headroom=rejection.headroom))


def rejection_effect(after: EarlyRejectionFacts, refused: Replay | None) -> PlanEffect:
    """Return the effect of early rejection: the share of requests refused, estimated as the share of recorded decisions
    in which every candidate was predicted to exceed the limit.
    """
    if after.mode == "Disabled":
        return PlanEffect(warnings=["Nothing is refused early: under overload requests wait until they time out."])
    notes = ["The estimate leaves out refusals that decoding causes. Mode Predicted refuses at least as many requests as mode Load."]
    notes = notes if after.mode == "Predicted" else []
    if refused is None:
        return PlanEffect(notes=notes)
    return PlanEffect(
        predicted_refusals=refused.share,
        prediction_basis=f"from {amount(refused.requests, 'sampled decision')} of the last {_minutes(refused)}, by their predicted TTFT",
        notes=notes,
        warnings=refusing(refused),
    )


def refusing(refused: Replay | None) -> list[str]:
    """Return a warning about the share of requests that would be refused early; empty below 0.1 %, or if the share is
    unknown.
    """
    return [f"{percentage(refused.share)} of requests like those would be refused."] if refused and refused.share >= 0.001 else []


def _minutes(replay: Replay) -> str:
    return amount(replay.seconds / 60, "minute")


KIND = section_kind(PlanKind.EARLY_REJECTION, lambda after: EarlyRejectionQuestion(after=after))
