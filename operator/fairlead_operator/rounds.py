"""One round for one pool: look at everything, tell the control API, plan, act, write the status. Nothing is remembered that is needed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairlead.conditions import PoolFacts
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import PoolState
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import CreateInstance
from fairlead.reconciling.observed import DesiredRole
from fairlead.reconciling.planning import plan
from fairlead.tables import PoolKey
from fairlead_operator.applying import Applier
from fairlead_operator.attempting import Attempts
from fairlead_operator.children import PoolIdentity, disruption_budget, service, spec_hash
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.conversing import Answer, Conversation
from fairlead_operator.farewells import FINALIZER, Farewell
from fairlead_operator.judging import Judgement, changes, is_told_refused, judge, was_refused
from fairlead_operator.observing import Pod, format_second, read_pods, spec_manager, who_changed
from fairlead_operator.owning import adopt, orphaned_pods, restore, strange_pods
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.statuses import is_urgent, merge_patch, status_document
from fairlead_operator.synchronizing import ControlPlane
from fairlead_operator.telling import Teller

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What rounds are done with. `clock` gives Unix seconds; `new_id` an id never used before; `children_noticed` a number that changes whenever
    an event about a pool's Service or PodDisruptionBudget came."""

    settings: OperatorSettings
    cluster: Cluster
    control_plane: ControlPlane
    clock: Callable[[], float]
    new_id: Callable[[], str]
    children_noticed: Callable[[PoolKey], int]


class PoolRounds:
    """Rounds of one pool, to be run one after the other. What it keeps between rounds only saves calls or words, never decides."""

    def __init__(self, key: PoolKey, surroundings: Surroundings) -> None:
        self._key = key
        self._with = surroundings
        self._teller = Teller(key, surroundings.cluster, surroundings.control_plane, surroundings.new_id)
        self._farewell = Farewell(key, surroundings.cluster, surroundings.control_plane, surroundings.settings.pace)
        self._attempts = Attempts(self._teller, surroundings.clock, surroundings.settings.pace.longest_retry)
        self._conversation = Conversation(key, surroundings.control_plane, surroundings.settings.pace, surroundings.clock)
        self._children: tuple[PoolSpec, int, float] | None = None
        self._status_written_at = 0.0

    async def run(self) -> float | None:
        """One round. Seconds until the next is due without an event; None when the pool is gone and told. Raises ClusterError."""
        pool = await self._with.cluster.get(Resource.POOLS, self._key.namespace, self._key.name)
        if pool is None:
            return await self._farewell.of_gone_pool()
        identity = PoolIdentity(namespace=self._key.namespace, name=self._key.name, uid=pool["metadata"]["uid"])
        documents = await self._with.cluster.find(Resource.PODS, self._key.namespace, identity.selector())
        pods = read_pods(documents, identity.uid)
        judgement = judge(pool)
        if pool["metadata"].get("deletionTimestamp"):
            return await self._say_farewell(identity, pool, pods, judgement)
        self._farewell.forget()
        await self._hold(pool)
        self._attempts.begin_round()
        if await self._adopt(identity, documents):
            return self._with.settings.pace.least
        strangers = strange_pods(documents, identity)
        return await self._reconcile(identity, pool, pods, strangers, judgement)

    async def _reconcile(
        self, identity: PoolIdentity, pool: dict[str, Any], pods: tuple[Pod, ...], strangers: tuple[str, ...], judgement: Judgement
    ) -> float:
        now = self._with.clock()
        desired = desired_role(judgement.spec)
        observed = tuple(pod.instance for pod in pods)
        answer = await self._conversation.tell(pool_state(pool, pods, judgement))
        last_ordinal = _last_ordinal(pool, pods)
        actions = plan(desired, observed, answer.believed, now, self._with.settings.limits, last_ordinal)
        await self._tell_changes(identity, pool, judgement, now)
        await self._restore_children(identity, judgement.spec, now)
        done = await self._applier(identity).apply(actions, judgement.spec)
        facts = PoolFacts(
            problem=judgement.problem,
            desired=desired,
            instances=observed,
            observations=answer.known,
            api_problem=answer.problem,
            slo_percentile=judgement.spec.slo.percentile if judgement.spec is not None else None,
            troubles=_troubles(pods),
            apply_problem=self._attempts.problem,
            strangers=strangers,
        )
        made = max((action.ordinal for action in actions if isinstance(action, CreateInstance)), default=0) if done else 0
        changed = await self._write_status(identity, pool, judgement, facts, max(last_ordinal, made), now)
        if answer.believed is not None:
            await self._teller.deliver()
        return self._due(answer, facts, unsettled=changed or bool(actions), goes_on=bool(actions) and done)

    def _due(self, answer: Answer, facts: PoolFacts, *, unsettled: bool, goes_on: bool) -> float:
        """Seconds until the next round: soon while something is under way, later and later while nobody answers or what is tried is refused."""
        pace = self._with.settings.pace
        retry = self._attempts.end_round()
        if goes_on:
            return pace.least
        if answer.believed is None:
            return answer.retry_in
        if retry is not None and not _busy(facts):
            return min(pace.settled, max(pace.busy, retry))
        unsettled = unsettled or not answer.believed.table_acknowledged
        return pace.busy if unsettled or _busy(facts) else pace.settled

    async def _tell_changes(self, identity: PoolIdentity, pool: dict[str, Any], judgement: Judgement, now: float) -> None:
        for change in changes(judgement.previous, judgement.spec):
            message = f"{change.message} (by {spec_manager(pool['metadata'], change.member)})"
            await self._teller.tell(identity, now, change.reason, message, before=change.before, after=change.after)
        if judgement.problem is not None and not is_told_refused(pool, judgement):
            await self._teller.tell(identity, now, "SpecRefused", judgement.problem.message)
        if judgement.problem is None and was_refused(pool):
            await self._teller.tell(identity, now, "SpecAccepted", f"Generation {judgement.generation} is in force")

    async def _restore_children(self, identity: PoolIdentity, spec: PoolSpec | None, now: float) -> None:
        """Look after Service and PodDisruptionBudget, unless they were found right and no event came about them since."""
        if spec is None:
            return
        noticed = self._with.children_noticed(self._key)
        if self._children is not None:
            known, count, at = self._children
            if known == spec and count == noticed and 0 <= now - at < self._with.settings.pace.children:
                return
        right = True
        for resource, body in ((Resource.SERVICES, service(identity, spec)), (Resource.BUDGETS, disruption_budget(identity))):
            act = partial(restore, self._with.cluster, identity, resource, body)
            right = await self._attempts.attempt(identity, ("child", resource), act) and right
        self._children = (spec, noticed, now) if right else None

    async def _adopt(self, identity: PoolIdentity, documents: list[dict[str, Any]]) -> bool:
        """Take up what an earlier pool of this name left running; whether any was, so that all is looked at anew before it is planned."""
        adopted = False
        for document in orphaned_pods(documents, identity):
            name = document["metadata"]["name"]
            if await self._attempts.attempt(
                identity, ("adopt", name), partial(adopt, self._with.cluster, identity, Resource.PODS, document)
            ):
                await self._teller.tell(
                    identity, self._with.clock(), "InstanceAdopted", f"{name} was left by an earlier pool", instance=name
                )
                adopted = True
        return adopted

    async def _write_status(
        self, identity: PoolIdentity, pool: dict[str, Any], judgement: Judgement, facts: PoolFacts, last_ordinal: int, now: float
    ) -> bool:
        """Whether the status changed in more than figures. Those are written no more often than a settled pool is looked at."""
        status = status_document(
            pool,
            judgement,
            facts,
            selector=identity.selector(),
            changed_by=spec_manager(pool["metadata"], "replicas"),
            last_ordinal=last_ordinal,
            now=format_second(now),
        )
        old = pool.get("status") or {}
        patch = merge_patch(old, status)
        urgent = is_urgent(old, status)
        if patch and (urgent or not 0 <= now - self._status_written_at < self._with.settings.pace.settled):
            self._status_written_at = now
            body = {"status": patch}
            await self._with.cluster.patch(Resource.POOLS, identity.namespace, identity.name, body, subresource="status")
        return urgent

    async def _hold(self, pool: dict[str, Any]) -> None:
        """Add the finalizer, so that the pool's end is not missed."""
        finalizers = pool["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            body = {"metadata": {"finalizers": [*finalizers, FINALIZER], "resourceVersion": pool["metadata"]["resourceVersion"]}}
            await self._with.cluster.patch(Resource.POOLS, self._key.namespace, self._key.name, body)

    async def _say_farewell(self, identity: PoolIdentity, pool: dict[str, Any], pods: tuple[Pod, ...], judgement: Judgement) -> float:
        draining = self._farewell.wants_draining(pool, pods)
        self._attempts.begin_round()
        if draining and await self._applier(identity).apply(draining, None):
            return self._with.settings.pace.least
        await self._teller.deliver()
        answer = await self._conversation.tell(pool_state(pool, pods, judgement))
        drain_timeout = judgement.spec.drain.timeout_seconds if judgement.spec is not None else 0.0
        now = self._with.clock()
        return await self._farewell.step(pool, pods, answer.believed, drain_timeout, now)

    def _applier(self, identity: PoolIdentity) -> Applier:
        return Applier(
            identity,
            self._with.cluster,
            self._teller,
            self._attempts,
            image=self._with.settings.engine_image,
            clock=self._with.clock,
        )


def desired_role(spec: PoolSpec | None) -> DesiredRole | None:
    """What the spec in force wants of the role `both`."""
    if spec is None:
        return None
    role = spec.roles[0]
    return DesiredRole(
        role=role.name,
        replicas=spec.replicas,
        min_replicas=role.min_replicas,
        max_replicas=role.max_replicas,
        spec_hash=spec_hash(spec, Role.BOTH),
        drain_timeout_seconds=spec.drain.timeout_seconds,
        prefill_tokens_per_second=spec.facts().engine.prefill_tokens_per_second,
    )


def pool_state(pool: dict[str, Any], pods: tuple[Pod, ...], judgement: Judgement) -> PoolState:
    """What the control API is told. The spec is the object's own, also when it is refused; addresses follow the spec in force."""
    metadata = pool["metadata"]
    port = judgement.spec.engine.port if judgement.spec is not None else 8000
    return PoolState(
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        resource_version=metadata["resourceVersion"],
        spec=pool.get("spec") or {},
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        changed_by=who_changed(pool),
        problem=judgement.problem.message if judgement.problem is not None else None,
        conditions=tuple((pool.get("status") or {}).get("conditions") or ()),
        instances=tuple(pod.report(port) for pod in pods),
    )


def _last_ordinal(pool: dict[str, Any], pods: tuple[Pod, ...]) -> int:
    """The highest ordinal known to have been given: by the pods there are, and by the status for those that are gone.

    The pods are read after the pool, so that a status never tells of a pod that another operator made and this one did not see.
    """
    return max((int((pool.get("status") or {}).get("lastOrdinal") or 0), *(pod.instance.ordinal for pod in pods)))


def _troubles(pods: tuple[Pod, ...]) -> dict[str, tuple[str, ...]]:
    troubles: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        if pod.trouble is not None and not pod.instance.terminating:
            troubles[pod.trouble] = (*troubles.get(pod.trouble, ()), pod.instance.id)
    return troubles


def _busy(facts: PoolFacts) -> bool:
    """Whether something is under way that no watch event will announce the end of."""
    return any(instance.state is not InstanceState.SERVING or instance.terminating for instance in facts.instances)
