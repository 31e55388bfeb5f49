"""Reconciles one pool: observe, send the state to the control API, decide, apply, write the status.

All state that matters is in the cluster, not in memory.
"""

import math
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from fairlead.conditions.facts import ActionFailure, Condition, ConditionType, PoolFacts
from fairlead.conditions.pool_conditions import merge_conditions, pool_conditions, suspends_forecast
from fairlead.instances import Role
from fairlead.pool_states import PoolObservations, PoolState
from fairlead.pools import DrainSpec, PoolSpec
from fairlead.reconciling.actions import SleepInstance, WakeInstance
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.rollout_progress import halts, step_in_force
from fairlead.reconciling.rollouts import leaving_next
from fairlead.reconciling.warming import weights
from fairlead.tables import PoolKey
from fairlead_operator.applying.others_acts import OthersActs
from fairlead_operator.applying.ownership import adopt, adopt_selected, orphaned_pods
from fairlead_operator.applying.retrying import ActionRetries
from fairlead_operator.cluster import ClusterError, ClusterRefused, Resource
from fairlead_operator.events import EventRecorder
from fairlead_operator.observing.adopted_pods import claims
from fairlead_operator.observing.groups import GROUP
from fairlead_operator.observing.lost_marks import made_by
from fairlead_operator.observing.pods import Pod
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.dependencies import Dependencies
from fairlead_operator.reconciling.finalizing import FINALIZER, Finalization, drains, has_finalizer, releases
from fairlead_operator.reconciling.lost_status import goes_on_from, ordinals_given
from fairlead_operator.reconciling.pool_reader import PoolReader, PoolReading
from fairlead_operator.reconciling.pool_round import PoolRound
from fairlead_operator.reconciling.pool_state import (
    given_ordinal,
    is_busy,
    last_ordinal,
    pool_state,
    present_outlook,
    seconds_to_replacement,
)
from fairlead_operator.reconciling.pool_writer import PoolWriter, Written, own_fault, refused_read
from fairlead_operator.reconciling.revisions import Revisions, former_hashes
from fairlead_operator.reconciling.roles import desired_pool, desired_roles, scale_steps, sharing
from fairlead_operator.reconciling.rollouts import present_canary, rollout_round
from fairlead_operator.reconciling.scaling import known_decisions, scaled
from fairlead_operator.reconciling.specs import AcceptedSpecs, read_spec_in_force
from fairlead_operator.reconciling.state_exchange import StateExchange
from fairlead_operator.reconciling.windows import scheduled
from fairlead_operator.sleepers import Sleepers
from fairlead_operator.times import format_second


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPool:
    """A pool in which nothing is in progress: the state that was last sent, and the facts of its conditions.

    It is valid from `at` until just before `until` (Unix seconds). At `until`, a window opens or closes, a lost
    instance is due for replacement, or the pool's objects must be read even without an event.
    """

    state: PoolState
    facts: PoolFacts
    at: float
    until: float

    def holds(self, now: float) -> bool:
        """Return whether the pool can stay settled at this Unix time: nothing is due and the clock was not set back."""
        return self.at <= now < self.until

    def state_at(self, now: float) -> PoolState:
        """Return the state to send to the control API at this Unix time."""
        schedules = self.state.schedules
        at = datetime.fromtimestamp(now, UTC)
        return replace(self.state, schedules=replace(schedules, at=at) if schedules is not None else None)

    def is_still(self, answer: PoolObservations) -> bool:
        """Return whether a whole round with the control API's response `answer` would change nothing: the routers use
        the same table version, and every condition keeps its value.
        """
        known = self.facts.observations
        same_table = answer.table_acknowledged and known is not None and answer.table_version == known.table_version
        return same_table and _essence(replace(self.facts, observations=answer)) == _essence(self.facts)

    def after(self, answer: PoolObservations, now: float) -> "SettledPool":
        """Return the settled pool after the control API's response `answer`: the messages of its conditions have the
        numbers of that response.
        """
        facts = replace(self.facts, observations=answer)
        return replace(self, facts=facts, state=_judged(self.state, facts, now))


def _judged(state: PoolState, facts: PoolFacts, now: float) -> PoolState:
    """Return the state with the conditions that follow from these facts. The conditions must be up to date in every
    state that is sent, because the control API takes the time of a condition from the state that contains it.
    """
    conditions = merge_conditions(state.conditions, pool_conditions(facts), state.generation, format_second(now))
    return replace(state, conditions=conditions)


def is_settled(facts: PoolFacts) -> bool:
    """Return whether the pool is settled: no change is in progress, and nothing depends on the next response of the
    control API. A pool that scales is never settled, because its number of instances depends on the figures of each
    response.
    """
    fixed = facts.scaling is not None and facts.scaling.is_fixed
    answered = facts.observations is not None and facts.api_problem is None
    return fixed and answered and facts.rollout is None and facts.apply_problem is None


def _essence(facts: PoolFacts) -> list[tuple[ConditionType, str, str, str]]:
    """Return the parts of the conditions whose changes must be reported at once: types, statuses, reasons and words.
    The numbers in messages are left out, because a new number may wait for the next whole round. Only the message of
    Ready keeps its numbers.
    """
    return [(one.type, one.status, one.reason, _words(one)) for one in pool_conditions(facts)]


def _words(condition: Condition) -> str:
    return condition.message if condition.type is ConditionType.READY else ""


def _asked_for(pool: dict[str, Any]) -> Hashable:
    """Return the annotations and fields in which people make requests to the operator. If one of their values changes,
    all pauses after refused actions end.
    """
    metadata = pool["metadata"]
    marks = [tuple(sorted((metadata.get(name) or {}).items())) for name in ("labels", "annotations")]
    return metadata["uid"], metadata.get("generation"), *marks


def _keeping_sleepers(spec: PoolSpec | None) -> tuple[Role, ...]:
    """Return the roles that keep instances asleep."""
    return tuple(role.name for role in spec.roles if role.asleep) if spec is not None else ()


Step = TypeVar("Step")


class PoolReconciler:
    """Reconciles one pool, never twice at once.

    Values are kept in memory only to save calls and to avoid repeated events. No decision depends on them.
    """

    def __init__(self, key: PoolKey, dependencies: Dependencies) -> None:
        pace = dependencies.settings.pace
        self._key = key
        self._dependencies = dependencies
        self._recorder = EventRecorder(key, dependencies.post_event, dependencies.control_plane)
        self._finalization = Finalization(key, dependencies.control_plane, pace)
        self._retries = ActionRetries(self._recorder, dependencies.clock, pace.longest_retry)
        self._state_exchange = StateExchange(key, dependencies.control_plane, pace, dependencies.clock)
        self._revisions = Revisions(dependencies.cluster, self._retries)
        serves_gateways = dependencies.settings.picker.service is not None
        self._reader = PoolReader(key, dependencies.cluster, self._revisions, serves_gateways=serves_gateways)
        self._others = OthersActs(dependencies.cluster, self._recorder, self._retries, dependencies.clock)
        self._sleepers = Sleepers(dependencies.engines)
        self._writer = PoolWriter(dependencies, self._recorder, self._retries, self._revisions, self._others, self._sleepers)
        self._specs = AcceptedSpecs(dependencies.policies)
        self._settled: SettledPool | None = None
        self._changes = 0
        self._refused_reads = 0
        """Number of steps in a row that ended because the Kubernetes API refused a read."""
        self._told_leaving: frozenset[str] = frozenset()

    def changed(self) -> None:
        """Read the pool's objects in the next round, even if the pool was settled a moment ago."""
        self._changes += 1
        self._settled = None

    def children_changed(self) -> None:
        """Check the Service, budgets and role objects in the next round, even if they were correct a moment ago."""
        self._writer.children_changed()
        self.changed()

    async def reconcile(self) -> float:
        """Reconcile once; return the seconds until the next run, unless an event arrives first. A settled pool is not
        read again until one of its objects changes (`SettledPool`). Raises ClusterError.
        """
        return await self._telling_faults(self._reconcile)

    async def _reconcile(self) -> float:
        due = await self._stay_settled() if self._settled is not None else None
        return due if due is not None else await self._reconcile_whole()

    async def _stay_settled(self) -> float | None:
        """Send the state of the settled pool; return the seconds until the next round, None if a whole round is
        needed.
        """
        now, settled, self._settled = self._dependencies.clock(), self._settled, None
        if settled is None or not settled.holds(now):
            return None
        changes = self._changes
        answer = await self._state_exchange.exchange(settled.state_at(now))
        if answer.trusted is None:
            return answer.retry_in
        if not settled.is_still(answer.trusted) or changes != self._changes:
            return None
        self._settled = settled.after(answer.trusted, now)
        return min(self._dependencies.settings.pace.settled, max(self._dependencies.settings.pace.least, settled.until - now))

    async def _reconcile_whole(self) -> float:
        pace, changes = self._dependencies.settings.pace, self._changes
        pool = await self._reader.pool()
        if pool is None or pool["metadata"].get("deletionTimestamp"):
            return pace.busy  # the deletion handler has the pool, or will have it
        if not has_finalizer(pool, FINALIZER):
            return pace.busy  # kopf is adding it; without it the pool's end could be missed
        identity = self._identity(pool)
        in_force = read_spec_in_force(pool, self._specs)
        pods = await self._reader.pods(identity, in_force.spec)
        self._retries.begin_round(_asked_for(pool))
        given = given_ordinal(pool)
        if await self._adopt(identity, pods, in_force.spec, given) or await self._others.restore_marks(
            identity, pods, in_force.spec, given
        ):
            return pace.least
        reading = await self._reader.read(identity, pool, pods, in_force)
        reading = replace(reading, pods=self._dependencies.nodes.marked(self._key, reading.pods))
        reading = replace(reading, pods=await self._sleepers.asked(reading.pods, _keeping_sleepers(in_force.spec)))
        self._tell_leaving(reading)
        decided = await self._decide(reading)
        ended = decided.answer.trusted.ended if decided.answer.trusted is not None else ()
        if ended and await self._others.account_for(identity, ended, in_force.spec, given):
            return pace.least  # an instance had only lost its marks, and must not be replaced
        self._dependencies.sleeping.note(self._key, asleep=decided.scaling.facts is not None and decided.scaling.facts.sleeps)
        self._dependencies.gateways.note(self._key, wants=in_force.spec is not None and in_force.spec.gateway is not None)
        async with self._dependencies.turns.lock(self._key.namespace, in_force.spec):
            decided = self._planned(await self._with_devices(decided))
            written = await self._writer.write(decided)
        self._tell_turn(decided, written)
        if decided.answer.trusted is not None:
            await self._recorder.deliver()
        due, settled = self._pause(decided, written)
        self._settled = settled if changes == self._changes else None
        return due

    def _tell_leaving(self, reading: PoolReading) -> None:
        """Record an event for each instance, once, when its node will be taken away."""
        nodes, now = self._dependencies.nodes, self._dependencies.clock()
        leaving = {pod.instance.id: pod.node for pod in reading.pods if nodes.why(pod.node)}
        for instance in sorted(leaving.keys() - self._told_leaving):
            words = f"node {leaving[instance]} is going to be taken away ({nodes.why(leaving[instance])}), so {instance} is drained and replaced"
            self._recorder.record(reading.identity, now, "NodeLeaves", words, instance=instance)
        self._told_leaving = frozenset(leaving)

    async def finalize(self) -> float | None:
        """Take one step of a deleted pool's finalization; return the seconds until the next step, None if the pool may
        be removed.

        Raises ClusterError.
        """
        return await self._telling_faults(self._finalize)

    async def _finalize(self) -> float | None:
        pool = await self._reader.pool()
        self._dependencies.nodes.forget(self._key)
        self._dependencies.sleeping.note(self._key, asleep=False)
        self._dependencies.gateways.note(self._key, wants=False)
        self._dependencies.turns.note(self._key, None, self._dependencies.clock())
        if pool is None:
            return None
        identity, in_force = self._identity(pool), read_spec_in_force(pool, self._specs)
        pods, _ = await self._reader.instances(identity, await self._reader.pods(identity), in_force)
        draining = drains(pool, pods)
        self._retries.begin_round(_asked_for(pool))
        if draining and await self._writer.apply(identity, draining, None):
            return self._dependencies.settings.pace.least
        answer = await self._state_exchange.exchange(pool_state(pool, pods, in_force))  # routers must hear of the drain first
        await self._recorder.deliver()
        drain_timeout = (in_force.spec.drain if in_force.spec is not None else DrainSpec()).timeout_seconds
        release = partial(self._release, identity, pods)
        return await self._finalization.step(pool, pods, answer.trusted, drain_timeout, self._dependencies.clock(), release)

    async def _release(self, identity: PoolIdentity, pods: tuple[Pod, ...]) -> bool:
        """Release the adopted pods of a deleted pool to their workloads; return whether all are released."""
        return await self._writer.apply(identity, releases(pods), None)

    async def report_deletion(self) -> float | None:
        """Report a deleted pool to the control API if the API does not know of the deletion. This happens if the API
        could not be reached at that time, or if the finalizer had been removed. Nothing is reported if a pool of this
        name exists again.

        Raises ClusterError.
        """
        if self._finalization.is_told or await self._reader.pool() is not None or await self._finalization.report():
            return None
        return self._dependencies.settings.pace.settled

    async def _telling_faults(self, step: Callable[[], Awaitable[Step]]) -> Step:
        """Run a step. If the step raises an error that only a bug can cause, or the Kubernetes API refuses a read for
        the second time in a row, write the error to the pool's status; raise the error again.
        """
        try:
            done = await step()
        except ClusterRefused as error:
            self._refused_reads += 1
            if self._refused_reads > 1:
                await self._tell(refused_read(error))
            raise
        except ClusterError:
            raise
        except Exception as error:
            await self._tell(own_fault(error))
            raise
        self._refused_reads = 0
        return done

    async def _tell(self, failure: ActionFailure) -> None:
        with suppress(ClusterError):
            if (pool := await self._reader.pool()) is not None:
                await self._writer.tell_failed_round(self._identity(pool), pool, failure)
                await self._recorder.deliver()

    def _identity(self, pool: dict[str, Any]) -> PoolIdentity:
        return PoolIdentity(namespace=self._key.namespace, name=self._key.name, uid=pool["metadata"]["uid"])

    async def _adopt(self, identity: PoolIdentity, documents: list[dict[str, Any]], spec: PoolSpec | None, given: int) -> bool:
        """Adopt instances that a deleted pool of this name left running, and pods that a role selects. `given` is the
        highest ordinal given so far.

        Returns whether any pod was adopted; everything must then be read again before planning.
        """
        adopted = False
        for claim in claims(documents, identity, spec):
            act = partial(adopt_selected, self._dependencies.cluster, identity, claim)
            if await self._retries.attempt(identity, ("adopt", claim.name), act):
                words = f"{claim.name} is selected as an instance of role {claim.role}"
                self._recorder.record(identity, self._dependencies.clock(), "InstanceAdopted", words, instance=claim.name)
                adopted = True
        is_own = partial(made_by, identity, last=given)
        for document in orphaned_pods(documents, identity):
            name = document["metadata"]["name"]
            resource, orphan = (Resource.LEADER_WORKER_SETS, document[GROUP]) if GROUP in document else (Resource.PODS, document)
            if await self._retries.attempt(
                identity, ("adopt", name), partial(adopt, self._dependencies.cluster, identity, resource, orphan)
            ):
                words = f"{name} {'had lost its ownerReference, which is put back' if is_own(name) else 'was left by an earlier pool'}"
                self._recorder.record(identity, self._dependencies.clock(), "InstanceAdopted", words, instance=name)
                adopted = True
        return adopted

    async def _decide(self, reading: PoolReading) -> PoolRound:
        """Send the pool's state to the control API, and return the round with the decisions that follow from the
        response. Raises ClusterError.
        """
        now, spec, instances, old = self._dependencies.clock(), reading.in_force.spec, reading.instances, reading.status
        schedules = scheduled(spec, now, forecast_left=suspends_forecast(old.get("conditions") or ()))
        told, ratio = (schedules.told, schedules.ratio) if schedules is not None else (None, None)
        roles = desired_roles(spec, reading.declared)
        warming = weights(desired_pool(ratio, roles), instances, now)
        halted = spec is not None and (halts(reading.rollout, spec.rollout) or step_in_force(reading.rollout, spec.rollout) is not None)
        leaving = leaving_next(roles, instances, halted=halted)
        canary = present_canary(reading.rollout, spec, roles, instances)
        expected = present_outlook(spec, reading.pool, reading.declared, reading.pods, now)
        state = pool_state(
            reading.pool,
            reading.pods,
            reading.in_force,
            warming,
            told,
            known_decisions(old, now),
            expected,
            reading.objectives.classes,
            leaving,
            canary,
        )
        answer = await self._state_exchange.exchange(state)
        if answer.trusted is not None:
            schedules = scheduled(spec, now, forecast_left=bool(answer.trusted.departed))
        ratio = schedules.ratio if schedules is not None else None
        standing = goes_on_from(spec, reading.in_force.previous, reading.standing)
        scaling = scaled(spec, reading.pool, reading.declared, answer.trusted, schedules, now, standing)
        desired = desired_roles(spec, scaling.wanted, {one.role: one.workload for one in reading.workloads})
        rollout = rollout_round(reading.rollout, spec, desired, instances, answer.trusted, now)
        current = reading.current_revision
        former = await self._revisions.former(reading.identity, reading.in_force, current) if rollout.keeps_former else None
        goal = rollout.goal(desired_pool(ratio, desired), former_hashes(former))
        highest = last_ordinal(reading.pool, reading.pods)
        if "lastOrdinal" not in old and reading.standing:
            highest = max(highest, ordinals_given(reading.pool, self._dependencies.settings.limits, now))
        return PoolRound(
            now=now,
            reading=reading,
            schedules=schedules,
            state=state,
            answer=answer,
            scaling=scaling,
            desired=desired,
            steps=scale_steps(old, scaling.wanted, reading.standing),
            rollout=rollout,
            former=former,
            goal=goal,
            highest_ordinal=highest,
        )

    async def _with_devices(self, decided: PoolRound) -> PoolRound:
        """Return the round with the present state of the devices on which the pool takes turns. Raises ClusterError."""
        dependencies, reading = self._dependencies, decided.reading
        look = dependencies.turns.look(dependencies.cluster, dependencies.engines, reading.pool, reading.in_force.spec, decided.now)
        devices = await look
        if devices is None:
            return decided
        desired = sharing(decided.desired, devices)
        goal = replace(decided.goal, roles=sharing(decided.goal.roles, devices)) if decided.goal is not None else None
        return replace(decided, desired=desired, goal=goal, devices=devices)

    def _tell_turn(self, decided: PoolRound, written: Written) -> None:
        """Record the number of instances that wait for a device. If the pool's status changed, wake the pools that
        share devices with it, so that they check at once whether they can act.
        """
        turn = written.facts.turn
        self._dependencies.turns.note(self._key, turn.waiting if turn is not None else None, decided.now)
        if written.status_changed:
            self._dependencies.turns.tell(self._key.namespace, decided.devices)

    def _planned(self, decided: PoolRound) -> PoolRound:
        """Return the round with its actions planned."""
        instances, trusted, limits = decided.reading.instances, decided.answer.trusted, self._dependencies.settings.limits
        gone = self._others.unreplaced()
        actions = next_actions(decided.goal, instances, trusted, decided.now, limits, decided.highest_ordinal, gone)
        self._others.planned(actions, is_planned=decided.goal is not None)
        return replace(decided, actions=actions)

    def _pause(self, decided: PoolRound, written: Written) -> tuple[float, SettledPool | None]:
        """Return two values: the seconds until the next reconciliation, and the settled pool (None if something is in
        progress in the pool).
        """
        pace, now = self._dependencies.settings.pace, decided.now
        due = self._due(decided, written)
        if decided.answer.trusted is not None:
            due = min(due, max(pace.busy, decided.scaling.due_in))
        wake_in = decided.schedules.wake_in if decided.schedules is not None else math.inf
        spec = decided.reading.in_force.spec
        # no event tells of a pod to adopt, nor of an engine that somebody wakes or puts to sleep
        is_watched = spec is not None and (spec.adopts or bool(_keeping_sleepers(spec)))
        is_quiet = (
            not is_watched
            and due >= pace.settled
            and not written.status_changed
            and is_settled(written.facts)
            and self._recorder.is_delivered
        )
        until = now + min(pace.longest_unread, wake_in, seconds_to_replacement(written.facts, self._dependencies.settings.limits, now))
        due = min(due, max(pace.least, wake_in))
        if not is_quiet:
            return due, None
        return due, SettledPool(state=_judged(decided.state, written.facts, now), facts=written.facts, at=now, until=until)

    def _due(self, decided: PoolRound, written: Written) -> float:
        """Return the seconds until the next round.

        The time is short while something is in progress. It grows while the control API does not respond or the
        Kubernetes API refuses actions.
        """
        pace, answer = self._dependencies.settings.pace, decided.answer
        retry = self._retries.end_round()
        if written.is_done and any(not isinstance(action, SleepInstance | WakeInstance) for action in decided.actions):
            return pace.least
        if answer.trusted is None:
            return answer.retry_in
        now = self._dependencies.clock()
        busy = is_busy(written.facts, now)
        if retry is not None and not busy:
            return min(pace.settled, max(pace.busy, retry))
        if busy or decided.actions or written.status_changed or not answer.trusted.table_acknowledged:
            return pace.busy
        replacement = seconds_to_replacement(written.facts, self._dependencies.settings.limits, now)
        return min(pace.settled, max(pace.busy, replacement))
