"""Pauses or resumes a pool's session migrations."""

from fairlead.amounts import amount
from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import MIGRATIONS_PAUSED
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class MigrationsQuestion(SpecQuestion):
    """Finds the effect of pausing or resuming session migrations."""

    async def effect(self, known: Known) -> PlanEffect:
        return migrations_effect(known.use, self.after.facts(), known.policies)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("sessions stay where they are until migrations are resumed")


def migrations_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of pausing or resuming migrations: whether sessions stay where they are or may move from now
    on. The change itself moves no session.
    """
    policy, bound = after.routing.policy, pool.sessions
    if after.routing.migrations != MIGRATIONS_PAUSED:
        return PlanEffect(notes=[f"{policy} moves sessions and queued requests again, by its own rules."])
    if not policies.keeps_homes(after.routing):
        return PlanEffect(notes=[f"{policy} binds no sessions, so none migrates anyway; queued requests stay in their queues."])
    return PlanEffect(
        notes=[
            f"{amount(bound, 'session', 'stay')} in place, and queued requests stay in their queues; new sessions are placed by {policy}.",
            "Instances that drain or are lost still lose their sessions.",
        ],
        warnings=["Nothing relieves an instance that becomes hot, until migrations are resumed."],
    )


KIND = section_kind(PlanKind.MIGRATIONS, lambda after: MigrationsQuestion(after=after))
