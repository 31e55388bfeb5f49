"""Decides which changes of a pool cause notices to webhooks. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.conditions.facts import ConditionType
from fairlead.pool_states import PoolEvent
from fairlead.reconciling.rollout_progress import RolloutTrouble
from fairlead.schedules.runs import RunReason, SkippedStart
from fairlead.tables import PoolKey
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.webhooks import NoticeKind

HALTED = frozenset(RolloutTrouble)
COMES_AND_GOES = frozenset({NoticeKind.OUT_OF_SLO, NoticeKind.FORECAST_LEFT, NoticeKind.INSTANCE_LOST, NoticeKind.INSTANCE_STALLED})
"""Kinds of notices that may be caused every few seconds in a pool at its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to `subject` of a pool and causes notices: described in words for people, and with facts
    for programs.
    """

    kind: NoticeKind
    pool: str
    subject: str
    words: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def comes_and_goes(self) -> bool:
        return self.kind in COMES_AND_GOES


Conditions = Sequence[Mapping[str, Any]]
"""A pool's Kubernetes conditions as the operator reports them."""


def of_conditions(pool: PoolKey, before: Conditions, after: Conditions) -> Iterator[Event]:
    """Yield an event if the pool begins to miss its objectives or its targets of tasks. Also yield an event if its
    rollout stops, or if the reason why the rollout is stopped changes.
    """
    for kind, words in ((ConditionType.SLO_MET, "objectives"), (ConditionType.TASK_SLO_MET, "targets of tasks")):
        missed = _condition(after, kind)
        if missed.get("status") == "False" != _condition(before, kind).get("status"):
            yield _of_condition(NoticeKind.OUT_OF_SLO, pool, f"{pool} misses its {words}", missed)
    halted = _condition(after, ConditionType.PROGRESSING)
    if halted.get("reason") in HALTED and halted["reason"] != _condition(before, ConditionType.PROGRESSING).get("reason"):
        yield _of_condition(NoticeKind.ROLLOUT_HALTED, pool, f"The rollout of {pool} has stopped", halted)


def _condition(conditions: Conditions, kind: ConditionType) -> Mapping[str, Any]:
    return next((one for one in conditions if one.get("type") == kind), {})


def _of_condition(kind: NoticeKind, pool: PoolKey, words: str, condition: Mapping[str, Any]) -> Event:
    facts = {"reason": condition.get("reason"), "message": condition.get("message")}
    return Event(kind=kind, pool=str(pool), subject=str(pool), words=f"{words}: {condition.get('message')}", facts=facts)


def of_lost(pool: PoolKey, instance: str, reason: str) -> Event:
    """Return the event that an instance became Lost."""
    words = f"Instance {instance} of {pool} is lost: {reason}"
    return Event(kind=NoticeKind.INSTANCE_LOST, pool=str(pool), subject=instance, words=words, facts={"reason": reason})


VANISHED = "InstanceVanished"
"""The name of the operator's event for an instance that served and has disappeared although nobody drained it."""


def of_operator(pool: PoolKey, event: PoolEvent) -> Iterator[Event]:
    """Yield an event if the operator reports that an instance vanished. Only the operator notices such a loss."""
    if event.reason == VANISHED and event.instance is not None:
        yield of_lost(pool, event.instance, event.message)


def of_stalled(pool: PoolKey, before: Iterable[str], after: Mapping[str, str]) -> Iterator[Event]:
    """Yield an event for each instance whose engine has stalled since the last report. `before` names the instances
    with engines that had already stalled. `after` has all instances with stalled engines now, each with a router's
    description.
    """
    for instance in sorted(after.keys() - set(before)):
        words = f"The engine of instance {instance} of {pool} makes no progress: {after[instance]}"
        yield Event(kind=NoticeKind.INSTANCE_STALLED, pool=str(pool), subject=instance, words=words, facts={"message": after[instance]})


_SKIPPED = {
    RunReason.SKIP: "its spec says to skip it",
    RunReason.PAUSED: "it is paused",
    RunReason.OVERRULED: "another schedule, or scaling after demand left the forecast, takes precedence",
    RunReason.MISSED: "no state of the pool arrived during the whole window",
}


def of_skipped(pool: PoolKey, skipped: SkippedStart) -> Event:
    """Return the event that a schedule's window did not open at its start."""
    start = skipped.start.isoformat()
    words = f"Schedule {skipped.schedule} of {pool} did not open its window of {start}: {_SKIPPED[skipped.reason]}"
    facts = {"start": start, "reason": skipped.reason.value}
    return Event(kind=NoticeKind.SCHEDULE_SKIPPED, pool=str(pool), subject=skipped.schedule, words=words, facts=facts)


def of_departure(pool: PoolKey, words: str) -> Event:
    """Return the event that demand departed from the forecast."""
    told = f"Schedules of {pool} that follow its forecast are suspended: {words}"
    return Event(kind=NoticeKind.FORECAST_LEFT, pool=str(pool), subject=str(pool), words=told, facts={"message": words})


def of_proposal(plan: Plan) -> Iterator[Event]:
    """Yield an event for a plan that is a proposal and waits for somebody to apply it; nothing for a plan that a person
    made.
    """
    if plan.proposal is not None:
        words = f"Plan {plan.id} ({plan.kind}) of {plan.pool} waits to be applied: {plan.proposal.because}"
        facts = {"kind": plan.kind.value, "until": plan.expires_at.isoformat(), "message": plan.proposal.because}
        yield Event(kind=NoticeKind.PLAN_PROPOSED, pool=plan.pool, subject=plan.id, words=words, facts=facts)


def of_plan(plan: Plan, reason: str | None) -> Event:
    """Return the event that a plan was applied."""
    why = f": {reason}" if reason else ""
    words = f"{plan.applied_by} applied plan {plan.id} ({plan.kind}) to {plan.pool}{why}"
    facts = {"kind": plan.kind.value, "by": plan.applied_by, "reason": reason, "undo_of": plan.undo_of}
    return Event(kind=NoticeKind.PLAN_APPLIED, pool=plan.pool, subject=plan.id, words=words, facts=facts)
