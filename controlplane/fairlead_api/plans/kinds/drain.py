"""Drains: an instance is emptied and replaced, or a drain is cancelled."""

from fairlead.amounts import amount
from fairlead.instance_marks import DRAIN_ANNOTATION
from fairlead.instances import ACCEPTING, InstanceState
from fairlead_api.plans.changes import MarkQuestion, mark_kind
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.hand_overs import forecast
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect
from fairlead_client.simulation_jobs import PoolChange


class DrainQuestion(MarkQuestion):
    """Finds the effect of draining an instance, or of cancelling its drain."""

    async def effect(self, known: Known) -> PlanEffect:
        return (drain_effect if self.is_set else undrain_effect)(known.use, self.instance, replaced=self.replaced)

    def tried(self, present: Present) -> Tried:
        """Return the pools to simulate: the pool as planned drains one of its simulated instances. Simulated instances
        have no names, so the instance is identified by its rank: the role's instances are ordered by the cost of
        draining them, in the pool and in the simulation.
        """
        if not self.is_set:
            raise CannotSimulate("sessions that have moved stay where they are")
        one = next((use for use in present.use.instances if use.id == self.instance), None)
        if one is None or one.state not in ACCEPTING:
            raise CannotSimulate("the instance serves nothing now")
        if present.instances[one.role] < 2 and not self.replaced:
            raise CannotSimulate("no instance is left to serve anything")
        alike = [other for other in present.use.instances if other.role is one.role and other.state in ACCEPTING]
        place = sorted(alike, key=lambda other: (other.bound_sessions, other.cache_tokens, other.id)).index(one)
        seconds = present.startup_seconds
        return Tried(as_planned=PoolChange(role=one.role, drained=place, is_replaced=self.replaced, startup_seconds=seconds))


def drain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """Return the effect of a drain: the sessions that move, and the capacity that remains until the new instance
    serves. If the instance is not `replaced`, that capacity remains permanently. Raises NotFound.
    """
    one = pool.instance(instance)
    if one.state is InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} drains already."])
    left = [use for use in pool.instances if use.state is InstanceState.SERVING and use.role is one.role and use is not one]
    number = f"{amount(len(left), 'instance')} of role {{}} {'serves' if len(left) == 1 else 'serve'}"
    words = f"{number.format(one.role)} until its successor serves; the number of instances stays the same."
    if not replaced:
        return _emptied(pool, one, number.format(one.role), alone=not left)
    if not left:
        words = "No other instance of its role serves, so its successor is started first, and the drain begins when that one serves."
    return PlanEffect(
        victims=[instance],
        sessions_moved=one.bound_sessions,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[words],
        heavy=pool.is_heavy(one.bound_sessions),
        hand_over=forecast(pool, [one]),
    )


def _emptied(pool: PoolUse, one: InstanceUse, words: str, *, alone: bool) -> PlanEffect:
    """Return the effect of draining an engine that Fairlead does not start or stop. The engine finishes its requests
    and stays empty; cancelling the drain puts it back into service.
    """
    return PlanEffect(
        sessions_moved=0 if alone else one.bound_sessions,
        sessions_lost=one.bound_sessions if alone else 0,
        cache_tokens_lost=one.cache_tokens,
        requests_in_flight=one.in_flight,
        notes=[] if alone else [f"{words} while it is drained. It goes on running, and takes requests again when the drain is cancelled."],
        warnings=["No other engine serves: every new request will be refused until the drain is cancelled."] if alone else [],
        heavy=alone or pool.is_heavy(one.bound_sessions),
        hand_over=forecast(pool, [one], replaced=False),
    )


def undrain_effect(pool: PoolUse, instance: str, *, replaced: bool = True) -> PlanEffect:
    """Return the effect of cancelling a drain: the instance takes requests again, unless the instance that replaces it
    already serves. Sessions that have moved do not return automatically. Raises NotFound.
    """
    one = pool.instance(instance)
    if one.state is not InstanceState.DRAINING:
        return PlanEffect(notes=[f"{instance} does not drain yet; it goes on serving."])
    if not replaced:
        return PlanEffect(notes=["It takes requests again; sessions that moved stay where they are."])
    return PlanEffect(notes=["It takes requests again, unless its successor serves already; sessions that moved stay where they are."])


KIND = mark_kind(PlanKind.DRAIN, DRAIN_ANNOTATION, DrainQuestion, sets=True)
