"""One round of a pool: the objects read, the control API's response, the decisions, and the events to record. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.pool_states import PoolState
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import Action
from fairlead.reconciling.devices import SharedDevices
from fairlead.reconciling.observed import DesiredPool, DesiredRole
from fairlead_operator.observing.field_managers import spec_manager
from fairlead_operator.reconciling.pool_reader import PoolReading
from fairlead_operator.reconciling.roles import ScaleStep
from fairlead_operator.reconciling.rollouts import RolloutRound
from fairlead_operator.reconciling.scaling import Scaled
from fairlead_operator.reconciling.specs import changes, is_refusal_reported, was_refused
from fairlead_operator.reconciling.state_exchange import Answer
from fairlead_operator.reconciling.windows import Scheduled, window_events


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRound:
    """All decisions of one round at `now` (Unix seconds); nothing has been carried out yet.

    `state` was sent to the control API and `answer` is its response. `steps` are the changes of the desired numbers
    since the last round. `former` is the earlier spec from which instances are still created during a halted rollout.
    `goal` is the planner's input, from which `actions` are planned; the actions are planned last. `highest_ordinal` is
    the highest ordinal given before the round.
    """

    now: float
    reading: PoolReading
    schedules: Scheduled | None
    state: PoolState
    answer: Answer
    scaling: Scaled
    desired: tuple[DesiredRole, ...]
    steps: tuple[ScaleStep, ...]
    rollout: RolloutRound
    former: PoolSpec | None
    goal: DesiredPool | None
    highest_ordinal: int
    devices: SharedDevices | None = None
    """The devices on which the pool takes turns; None if it takes none."""
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEvent:
    """An event to record about the pool; `before` and `after` are the figures that the pool's history stores."""

    reason: str
    message: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


def round_events(round_: PoolRound) -> Iterator[RoundEvent]:
    """Yield the events of a round about windows, desired numbers, the spec, the rollout, and requested numbers that are
    beyond a role's bounds.
    """
    for event in window_events(round_.reading.status, round_.schedules, round_.now):
        yield RoundEvent(reason=event.reason, message=event.message, after=event.figure)
    yield from _of_numbers(round_)
    yield from _of_the_spec(round_)
    if (news := round_.rollout.news()) is not None:
        yield RoundEvent(reason=news[0], message=news[1])
    yield from _of_bounds(round_)


def _of_numbers(round_: PoolRound) -> Iterator[RoundEvent]:
    ratio_step = round_.scaling.ratio_step
    if ratio_step is not None:
        yield RoundEvent(reason="RatioChanged", message=ratio_step.message, before=ratio_step.before, after=ratio_step.after)
        return
    for step in round_.steps:
        yield RoundEvent(reason=step.event, message=step.message, before=step.figure(step.before), after=step.figure(step.after))


def _of_the_spec(round_: PoolRound) -> Iterator[RoundEvent]:
    pool, in_force = round_.reading.pool, round_.reading.in_force
    for change in changes(in_force.previous, in_force.spec):
        message = f"{change.message} (by {spec_manager(pool['metadata'], change.member)})"
        yield RoundEvent(reason=change.reason, message=message, before=change.before, after=change.after)
    if in_force.problem is not None and not is_refusal_reported(pool, in_force):
        yield RoundEvent(reason="SpecRefused", message=in_force.problem.message)
    if in_force.problem is None and was_refused(pool):
        yield RoundEvent(reason="SpecAccepted", message=f"Generation {in_force.generation} is in force")


def _of_bounds(round_: PoolRound) -> Iterator[RoundEvent]:
    """Yield an event for each role whose requested number of instances exceeds the role's bounds. Once the status of
    the role's object contains the message, the event is not repeated.
    """
    objects = round_.reading.objects
    for item in round_.reading.declared:
        if item.beyond and (objects[item.role].document.get("status") or {}).get("message") != item.reason:
            yield RoundEvent(reason="ScaleBounded", message=item.reason)
