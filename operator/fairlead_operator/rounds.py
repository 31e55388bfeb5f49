"""One round for one pool: look at everything, tell the control API, plan, act, write the status. Nothing is remembered that is needed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.conditions import ConditionType, PoolFacts, Refusal
from fairlead.draining import without_hasty_silence
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import PoolObservations, PoolState
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import DesiredRole
from fairlead.reconciling.planning import plan
from fairlead.tables import PoolKey
from fairlead_operator.applying import Applier
from fairlead_operator.children import PoolIdentity, disruption_budget, service, spec_hash
from fairlead_operator.cluster import Cluster, ClusterRefused, Resource
from fairlead_operator.farewells import FINALIZER, Farewell
from fairlead_operator.judging import Judgement, changes, judge
from fairlead_operator.observing import Pod, format_second, read_pods, spec_manager, who_changed
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.statuses import is_urgent, merge_patch, status_document
from fairlead_operator.synchronizing import ControlPlane, ControlPlaneSilent
from fairlead_operator.telling import Teller

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What rounds are done with. `clock` gives Unix seconds; `new_suffix` five characters and `new_id` a longer id, never used before."""

    settings: OperatorSettings
    cluster: Cluster
    control_plane: ControlPlane
    clock: Callable[[], float]
    new_suffix: Callable[[], str]
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    observations: PoolObservations | None
    problem: str | None


class PoolRounds:
    """Rounds of one pool, to be run one after the other. What it keeps between rounds only saves calls or words, never decides."""

    def __init__(self, key: PoolKey, surroundings: Surroundings) -> None:
        self._key = key
        self._with = surroundings
        self._teller = Teller(key, surroundings.cluster, surroundings.control_plane, surroundings.new_id)
        self._farewell = Farewell(key, surroundings.cluster, surroundings.control_plane, surroundings.settings.pace)
        self._children: tuple[PoolSpec, float] | None = None
        self._status_written_at = 0.0
        self._answered_since: float | None = None

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
        return await self._reconcile(identity, pool, pods, judgement)

    async def _reconcile(self, identity: PoolIdentity, pool: dict[str, Any], pods: tuple[Pod, ...], judgement: Judgement) -> float:
        now = self._with.clock()
        desired = desired_role(judgement.spec)
        observed = tuple(pod.instance for pod in pods)
        answer = await self._synchronize(pool, pods, judgement)
        actions = plan(desired, observed, self._believed(answer, pods, now), now, self._with.settings.limits)
        await self._tell_changes(identity, pool, judgement, now)
        failure = await self._apply_children(identity, judgement.spec, now)
        failure = await self._applier(identity).apply(actions, judgement.spec) or failure
        facts = PoolFacts(
            problem=judgement.problem,
            desired=desired,
            instances=observed,
            observations=answer.observations,
            api_problem=answer.problem,
            slo_percentile=judgement.spec.slo.percentile if judgement.spec is not None else None,
            troubles=_troubles(pods),
            apply_problem=failure,
        )
        changed = await self._write_status(identity, pool, judgement, facts, now)
        if answer.observations is not None:
            await self._teller.deliver()
        pace = self._with.settings.pace
        if actions and failure is None:
            return pace.least
        unsettled = changed or bool(actions) or answer.observations is None or not answer.observations.table_acknowledged
        return pace.busy if unsettled or _busy(facts) else pace.settled

    async def _synchronize(self, pool: dict[str, Any], pods: tuple[Pod, ...], judgement: Judgement) -> _Answer:
        try:
            observations = await self._with.control_plane.put_state(self._key, pool_state(pool, pods, judgement))
        except ControlPlaneSilent as error:
            logger.warning("control plane silent pool=%s error=%r", self._key, str(error))
            self._answered_since = None
            return _Answer(observations=None, problem=str(error))
        return _Answer(observations=observations, problem=None)

    def _believed(self, answer: _Answer, pods: tuple[Pod, ...], now: float) -> PoolObservations | None:
        """The observations to plan by. Right after an outage, or a start, routers may not have had the time to report."""
        if answer.observations is None:
            return None
        if self._answered_since is None or self._answered_since > now:
            self._answered_since = now
        if now - self._answered_since >= self._with.settings.pace.router_silence:
            return answer.observations
        draining = {pod.instance.id for pod in pods if pod.instance.state is InstanceState.DRAINING}
        return without_hasty_silence(answer.observations, draining)

    async def _tell_changes(self, identity: PoolIdentity, pool: dict[str, Any], judgement: Judgement, now: float) -> None:
        for change in changes(judgement.previous, judgement.spec):
            message = f"{change.message} (by {spec_manager(pool['metadata'], change.member)})"
            await self._teller.tell(identity, now, change.reason, message, before=change.before, after=change.after)
        if judgement.problem is not None and not _already_refused(pool, judgement):
            await self._teller.tell(identity, now, "SpecRefused", judgement.problem.message)
        if judgement.problem is None and _refused_before(pool):
            await self._teller.tell(identity, now, "SpecAccepted", f"Generation {judgement.generation} is in force")

    async def _apply_children(self, identity: PoolIdentity, spec: PoolSpec | None, now: float) -> str | None:
        if spec is None:
            return None
        if self._children is not None:
            known, applied_at = self._children
            if known == spec and 0 <= now - applied_at < self._with.settings.pace.children:
                return None
        try:
            for resource, body in ((Resource.SERVICES, service(identity, spec)), (Resource.BUDGETS, disruption_budget(identity))):
                await self._with.cluster.patch(resource, identity.namespace, body["metadata"]["name"], body, kind="apply")
        except ClusterRefused as error:
            return str(error)
        self._children = (spec, now)
        return None

    async def _write_status(self, identity: PoolIdentity, pool: dict[str, Any], judgement: Judgement, facts: PoolFacts, now: float) -> bool:
        """Whether the status changed in more than figures. Those are written no more often than a settled pool is looked at."""
        status = status_document(
            pool,
            judgement,
            facts,
            selector=identity.selector(),
            changed_by=spec_manager(pool["metadata"], "replicas"),
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
        if draining:
            await self._applier(identity).apply(draining, None)
            return self._with.settings.pace.least
        await self._teller.deliver()
        answer = await self._synchronize(pool, pods, judgement)
        drain_timeout = judgement.spec.drain.timeout_seconds if judgement.spec is not None else 0.0
        now = self._with.clock()
        return await self._farewell.step(pool, pods, self._believed(answer, pods, now), drain_timeout, now)

    def _applier(self, identity: PoolIdentity) -> Applier:
        return Applier(
            identity,
            self._with.cluster,
            self._teller,
            image=self._with.settings.engine_image,
            clock=self._with.clock,
            new_suffix=self._with.new_suffix,
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


def _already_refused(pool: dict[str, Any], judgement: Judgement) -> bool:
    """Whether the status says already that this generation is refused."""
    generation = int(pool["metadata"].get("generation") or 0)
    return judgement.problem is not None and any(
        condition.get("type") == "Ready"
        and condition.get("reason") == judgement.problem.reason
        and condition.get("observedGeneration") == generation
        for condition in (pool.get("status") or {}).get("conditions") or ()
    )


def _refused_before(pool: dict[str, Any]) -> bool:
    """Whether the status still says that the spec is refused."""
    return any(
        condition.get("type") == ConditionType.READY and condition.get("reason") in set(Refusal)
        for condition in (pool.get("status") or {}).get("conditions") or ()
    )


def _troubles(pods: tuple[Pod, ...]) -> dict[str, tuple[str, ...]]:
    troubles: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        if pod.trouble is not None and not pod.instance.terminating:
            troubles[pod.trouble] = (*troubles.get(pod.trouble, ()), pod.instance.id)
    return troubles


def _busy(facts: PoolFacts) -> bool:
    """Whether something is under way that no watch event will announce the end of."""
    return any(instance.state is not InstanceState.SERVING or instance.terminating for instance in facts.instances)
