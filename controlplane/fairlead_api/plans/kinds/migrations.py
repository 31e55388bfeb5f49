"""A pool's migrations are paused, or go on."""

from fairlead.pools import TableFacts
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import MIGRATIONS_PAUSED
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import PoolUse
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class MigrationsQuestion(SpecQuestion):
    """What would pausing migrations, or ending the pause, do?"""

    async def effect(self, known: Known) -> PlanEffect:
        return migrations_effect(known.use, self.after.facts(), known.policies)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("it holds sessions where they are until it is taken back")


def migrations_effect(pool: PoolUse, after: TableFacts, policies: PolicyCatalogue) -> PlanEffect:
    """What stays where it is from now on, or may move again. The change itself moves no session."""
    policy, bound = after.routing.policy, pool.sessions
    if after.routing.migrations != MIGRATIONS_PAUSED:
        return PlanEffect(notes=[f"{policy} moves sessions and queued requests again, by its own rules."])
    if not policies.keeps_homes(after.routing):
        return PlanEffect(notes=[f"{policy} keeps no session at a home, so none migrates anyway; queued requests wait where they are."])
    return PlanEffect(
        notes=[
            f"{bound:,} sessions stay where they are, and queued requests wait where they do; new sessions are placed by {policy}.",
            "What drains or is lost still gives its sessions up.",
        ],
        warnings=["Nothing relieves an instance that becomes hot, until migrations go on."],
    )


KIND = section_kind(PlanKind.MIGRATIONS, lambda after: MigrationsQuestion(after=after))
