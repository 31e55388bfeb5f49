"""What a settled pool's last whole round saw: while all of it still holds, another full round would change nothing.

Objects count as unchanged until an event about one of them; so the next rounds read none, and only report the state to
the control API and compare its answer. Facts that depend only on time have an expiry. Pure.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts
from fairlead.conditions.pool_conditions import pool_conditions
from fairlead.pool_states import PoolObservations, PoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPool:
    """The state sent, and the facts of the conditions, at a Unix time. They hold before `until`: then a window opens or
    closes, a lost instance is due for replacement, or the objects must be read even without an event.
    """

    state: PoolState
    facts: PoolFacts
    at: float
    until: float

    def holds(self, now: float) -> bool:
        """Whether nothing is due at a Unix time; a clock that was set back ends it."""
        return self.at <= now < self.until

    def state_at(self, now: float) -> PoolState:
        """The state to tell at a Unix time."""
        schedules = self.state.schedules
        at = datetime.fromtimestamp(now, UTC)
        return replace(self.state, schedules=replace(schedules, at=at) if schedules is not None else None)

    def is_still(self, answer: PoolObservations) -> bool:
        """Whether a whole round with this answer would do nothing: routers have the table, every condition stays."""
        known = self.facts.observations
        same_table = answer.table_acknowledged and known is not None and answer.table_version == known.table_version
        return same_table and _essence(replace(self.facts, observations=answer)) == _essence(self.facts)


def is_settled(facts: PoolFacts) -> bool:
    """Whether the facts are those of a pool with nothing in progress and nothing that the next answer decides. The
    number of a pool that scales depends on the figures of each answer.
    """
    fixed = facts.scaling is not None and facts.scaling.is_fixed
    answered = facts.observations is not None and facts.api_problem is None
    return fixed and answered and facts.rollout is None and facts.apply_problem is None


def _essence(facts: PoolFacts) -> list[tuple[ConditionType, str, str, str]]:
    """What a status must tell at once; figures in the words of conditions besides Ready may wait for a whole round."""
    return [(one.type, one.status, one.reason, _words(one)) for one in pool_conditions(facts)]


def _words(condition: Condition) -> str:
    return condition.message if condition.type is ConditionType.READY else ""
