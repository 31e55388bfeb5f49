"""MigrationsPaused: does the spec hold every session where it is?"""

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts


def migrations_paused(facts: PoolFacts) -> Condition:
    """True while `spec.routing.migrations` is Paused."""
    kind = ConditionType.MIGRATIONS_PAUSED
    if facts.migrations_paused is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if not facts.migrations_paused:
        return Condition(type=kind, status="False", reason="NotPaused", message="Sessions move by the policy's rules")
    message = "Sessions stay where they are, however hot that is, unless it drains or is lost"
    return Condition(type=kind, status="True", reason="PausedInSpec", message=message)
