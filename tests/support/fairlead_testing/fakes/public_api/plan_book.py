"""The plans of the fake public API, by id: each with its effect and its changes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import yaml

from fairlead.instance_marks import POOL_LABEL
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.changes import Change
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_api.plans.kinds.engines import ENGINES
from fairlead_api.plans.merge_patches import inverse, merged
from fairlead_api.plans.objects import ClusterObject, Target, TargetKind
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_api.pools.diffs import diff
from fairlead_api.pools.fixed_engines import ENGINES_FILE
from fairlead_client.resources.expectations import PlanExpectation
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PROPOSER, Plan, PlanEffect, PlanState, Proposal
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.fakes.public_data.world import World


class WorldCluster:
    """Reads the objects of a world, as plans read objects of the cluster. Implements `plans.objects.ObjectReader`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def spec_of(self, pool: PoolKey, revision: int) -> dict[str, Any]:
        return self._world.spec(str(pool), revision)

    async def revisions(self, pool: PoolKey) -> list[StoredRevision]:
        return self._world.template_revisions(str(pool))

    async def read(self, target: Target) -> ClusterObject:
        match target.kind:
            case TargetKind.SESSION:
                return self._session(target)
            case TargetKind.INSTANCE | TargetKind.ENGINE:
                return self._instance(target)
        pool = f"{target.namespace}/{target.name}"
        if target.kind is TargetKind.POOL and pool not in INSTANCES:
            raise NotFound("pool", pool)
        if target.kind is TargetKind.ROLE:
            pool, _, role = pool.rpartition("-")
            return _object({"role": role, "replicas": self._world.roles_wanted[pool][role]})
        if target.kind is TargetKind.ENGINES:
            return _object({ENGINES: {name: {"url": f"http://{name}:8000"} for name in INSTANCES[pool]}})
        file = self._world.engines_files.get(pool)
        annotations = {} if file is None else {ENGINES_FILE: file}
        return _object(self._world.spec(pool), annotations=annotations, status=self._world.status(pool))

    def _session(self, target: Target) -> ClusterObject:
        pool, session = target.pool_and_session
        for one in self._world.sessions():
            if (one.pool, one.session) == (str(pool), session):
                return _object({} if one.instance is None else {"instance": one.instance}, status={"contextTokens": one.context_tokens})
        raise NotFound("session", session)

    def _instance(self, target: Target) -> ClusterObject:
        for pool, names in INSTANCES.items():
            if target.name in names:
                label = {POOL_LABEL: pool.partition("/")[2]}
                return _object({}, labels=label, annotations=self._world.annotations(target.name))
        raise NotFound("instance", target.name)


def _object(spec: dict[str, Any], **more: Any) -> ClusterObject:
    about: dict[str, Any] = {"labels": {}, "annotations": {}, **more}
    return ClusterObject(uid="u", resource_version="1", generation=1, spec=spec, managers=(), **about)


class PlanBook:
    """The plans over a world. `applied` lists the ids of applied plans in order.

    `changes` has two merge patches of the spec for each plan: the patch that applies it and the patch that undoes it.
    """

    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self.world = world
        self.clock = clock
        self.plans: dict[str, Plan] = {}
        self.expectations: dict[str, PlanExpectation] = {}
        self.changes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.applied: list[str] = []

    def make(self, pool: str, replicas: int, who: str) -> Plan:
        """Make an open plan of this many replicas."""
        return self.plan(pool, PlanKind.SCALE, {"replicas": replicas}, who)

    def propose(self, pool: str, replicas: int, because: str) -> Plan:
        """Make a proposal of this many replicas."""
        made = self.make(pool, replicas, PROPOSER)
        proposal = Proposal(because=because, request=PlanRequest(kind=PlanKind.SCALE, replicas=replicas))
        self.plans[made.id] = replace(made, proposal=proposal, expires_at=self.clock() + timedelta(days=1))
        return self.plans[made.id]

    def plan(
        self,
        pool: str,
        kind: PlanKind,
        change: dict[str, Any],
        who: str,
        *,
        instance: str | None = None,
        engines: dict[str, Any] | None = None,
        session: tuple[str, str | None] | None = None,
        undo_of: str | None = None,
    ) -> Plan:
        """Make an open plan of `change`: a merge patch of the spec or of an instance's annotations.

        `engines` is the change of a file's engines, `session` a session with its new home. A plan of kind `delete`
        removes the whole spec.
        """
        path: tuple[str, ...] = ("metadata", "annotations") if instance else ("spec",)
        before = self.world.annotations(instance) if instance else {} if kind is PlanKind.CREATE else self.world.spec(pool)
        if engines is not None:
            path, before = (), {"engines": engines}
        if session is not None:
            path, before = (), {"instance": session[1]}
        after = {} if kind is PlanKind.DELETE else merged(before, change)
        patch = {"metadata": {"annotations": change}} if instance else {"spec": change}
        plan = Plan(
            id=f"p-{len(self.plans) + 1:04d}",
            pool=pool,
            kind=kind,
            target=f"Session {pool}/{session[0]}"
            if session
            else f"Pod {pool.partition('/')[0]}/{instance}"
            if instance
            else f"InferencePool {pool}",
            created_at=self.clock(),
            created_by=who,
            expires_at=self.clock() + timedelta(minutes=10),
            state=PlanState.OPEN,
            diff=diff(before, after, "".join(f"/{name}" for name in path)),
            effect=_scaling(pool, before["replicas"], after["replicas"])
            if kind is PlanKind.SCALE
            else replace(EFFECTS[kind], for_admins=kind_of(kind).is_for_admins(before, after)),
            owner=None if instance else self.world.owner.get(pool),
            patch=yaml.safe_dump(patch, sort_keys=False),
            undo_of=undo_of,
        )
        self.plans[plan.id], self.changes[plan.id] = plan, (change, inverse(before, change))
        return plan

    def of_change(self, pool: str, asked: PlanRequest, change: Change, who: str) -> Plan:
        """Make an open plan of a change that a plan kind computed from a request."""
        session = (asked.session, change.part.get("instance")) if asked.session is not None else None
        instance = asked.instance if change.target.kind.is_instance else None
        engines = change.part[ENGINES] if change.target.kind is TargetKind.ENGINES else None
        return self.plan(pool, asked.kind, change.patch, who, instance=instance, engines=engines, session=session)

    def carry_out(self, plan: Plan) -> None:
        """Change the world as the plan says."""
        self.applied.append(plan.id)
        change, _ = self.changes[plan.id]
        if plan.kind in {PlanKind.ENGINES, PlanKind.DELETE, PlanKind.MOVE, PlanKind.UNPIN, PlanKind.CREATE}:
            return  # the world's pools, instances and sessions are fixed
        if plan.target.startswith("Pod "):
            name = plan.target.rpartition("/")[2]
            self.world.marks[name] = merged(self.world.annotations(name), change)
            return
        rest = dict(change)
        self.world.desired[plan.pool] = rest.pop("replicas", self.world.desired[plan.pool])
        before = self.world.spec_changes.get(plan.pool, {})
        self.world.spec_changes[plan.pool] = {
            **before,
            **{name: {**before.get(name, {}), **value} if isinstance(value, dict) else value for name, value in rest.items()},
        }


def _scaling(pool: str, before: int, replicas: int) -> PlanEffect:
    """Return the effect of a new number of replicas. A plan is heavy if it removes more than two instances or leaves
    none.
    """
    names, removed = INSTANCES[pool], max(0, before - replicas)
    heavy = replicas == 0 or removed > 2
    return PlanEffect(
        instances_added=max(0, replicas - before),
        instances_removed=removed,
        victims=names[len(names) - removed :] if removed else [],
        sessions_moved=removed * 14 if replicas else 0,
        sessions_lost=0 if replicas else removed * 14,
        requests_in_flight=removed * 3,
        cache_tokens_lost=removed * 310_000,
        warnings=["More than 10 % of sessions move; their next prompts are computed again."] if heavy else [],
        heavy=heavy,
    )


EFFECTS = {
    PlanKind.POLICY: PlanEffect(notes=["96 sessions keep their homes; fairlead decides from their next request on."]),
    PlanKind.SLO: PlanEffect(
        predicted_attainment=0.874,
        prediction_basis="from 24,310 first tokens of the last 30 minutes, served as they were",
        warnings=["The goal of 90% in time would have been missed: 87.4% would have been in time."],
    ),
    PlanKind.EARLY_REJECTION: PlanEffect(
        predicted_refusals=0.031,
        prediction_basis="from 1,204 sampled decisions of the last 30 minutes, by their predicted TTFT",
        warnings=["3.1% of requests like those would be refused."],
    ),
    PlanKind.RING: PlanEffect(
        key_share_moved=0.183,
        sessions_moved=18,
        cache_tokens_lost=412_000,
        warnings=["About 18 of 96 sessions move with their next request, and lose their cache."],
        heavy=True,
    ),
    PlanKind.WEIGHT: PlanEffect(
        key_share_moved=0.064,
        sessions_moved=6,
        cache_tokens_lost=141_000,
        notes=["Share of keys of vllm-0: 13.5% now, 7.1% with this plan."],
        warnings=["About 6 of 96 sessions move with their next request, and lose their cache."],
    ),
    PlanKind.SCALING: PlanEffect(notes=["Numbers stay as declared; every recommendation is recorded with its signals."]),
    PlanKind.RATIO: PlanEffect(notes=["Instances drain and change between prefill and decode without a person."]),
    PlanKind.CORDON: PlanEffect(
        key_share_moved=0.131,
        sessions_moved=12,
        cache_tokens_lost=268_000,
        requests_in_flight=5,
        notes=["It is not replaced while it is cordoned: 6 instances of role both go on."],
    ),
    PlanKind.DRAIN: PlanEffect(
        sessions_moved=12,
        cache_tokens_lost=268_000,
        requests_in_flight=5,
        notes=["6 instances of role both serve until its successor serves; the number of instances stays the same."],
    ),
    PlanKind.ENGINES: PlanEffect(
        instances_added=1, key_share_moved=0.125, notes=["engine-9 gets requests once it answers and serves the pool's model."]
    ),
    PlanKind.UNDRAIN: PlanEffect(notes=["It takes requests again, unless its successor serves already."]),
    PlanKind.MIGRATIONS: PlanEffect(
        notes=["96 sessions stay where they are, and queued requests wait where they do."],
        warnings=["Nothing relieves an instance that becomes hot, until migrations are resumed."],
    ),
    PlanKind.DELETE: PlanEffect(
        instances_removed=7,
        sessions_lost=96,
        cache_tokens_lost=2_170_000,
        requests_in_flight=31,
        notes=["Undoing creates the pool again with the same spec: instances start again, and lost sessions and caches stay lost."],
        warnings=["Every request for the pool is refused from then on."],
        heavy=True,
    ),
    PlanKind.MOVE: PlanEffect(
        sessions_moved=1,
        cache_tokens_lost=8_412,
        notes=["Its next request goes there, regardless of the policy; after that the policy may move it again."],
        warnings=["About 8,412 tokens of context are computed again there."],
    ),
    PlanKind.UNPIN: PlanEffect(
        notes=["The policy places its next request like that of a new session, perhaps on the same instance again."]
    ),
    PlanKind.ROLLOUT: PlanEffect(notes=["Outdated instances stay; a lost one is replaced with the template it had."]),
    PlanKind.ROLLBACK: PlanEffect(
        instances_added=2,
        instances_removed=2,
        sessions_moved=24,
        cache_tokens_lost=520_000,
        notes=["2 of 8 instances of role both are drained and replaced one after the other."],
    ),
    PlanKind.REVERT: PlanEffect(notes=["96 sessions keep their homes; ear decides from their next request on."]),
    PlanKind.BOUNDS: PlanEffect(notes=["Scaling and schedules keep the pool between 2 and 16 instances."]),
    PlanKind.PACE: PlanEffect(notes=["A role grows by at most 4 or 100 %, whichever is larger, in 60s."]),
    PlanKind.SESSIONS: PlanEffect(notes=["A session keeps its home for 2h after its last request."]),
    PlanKind.DRAINING: PlanEffect(
        notes=["An instance that drains waits for its requests in flight at most 10m, even if it drains already."]
    ),
    PlanKind.FAIRNESS: PlanEffect(
        notes=["Waiting requests of a priority class: they go in one order, whoever sent them. No session moves."]
    ),
    PlanKind.CLASSES: PlanEffect(notes=["Waiting requests are sent in the order interactive, batch."]),
    PlanKind.SPEC: PlanEffect(notes=["96 sessions keep their homes; ear decides from their next request on."]),
    PlanKind.CREATE: PlanEffect(instances_added=2, notes=["Instances start with empty caches."]),
    PlanKind.SCHEDULE: PlanEffect(
        notes=["No window is open right after the change.", "The next change is at 2026-11-23 07:00:00 UTC."],
        warnings=["day and night are open together from 2026-11-23 07:00:00 UTC to 2026-11-23 09:00:00 UTC; night decides."],
    ),
    PlanKind.UNCORDON: PlanEffect(
        key_share_moved=0.131, sessions_moved=9, warnings=["About 9 of 96 sessions follow their keys to it, and lose their cache."]
    ),
}
