"""A small, deterministic world for the web UI's tests: two pools, twelve instances, an hour of load, sessions, moves,
refusals and an audit log.

All values follow from `now` and fixed seeds, so that a test can compute the values that a page must show. Names try to
break pages: one session is called `<img src=x onerror=alert(1)>`.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fairlead.capabilities import EngineCapability
from fairlead.instances import InstanceState, Role, weight_of
from fairlead.revisions import revision_data
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.resources.access import TokenItem
from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.figures import FiguresByInstance, RangeFigures
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.instances import (
    CacheKnowledge,
    EngineCondition,
    InstanceSummary,
    InstanceTransition,
    LearntOfEngines,
    SessionsHeld,
)
from fairlead_client.resources.load_explanations import LoadExplanation
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pools import PoolCondition, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.rejections import RejectionGroup
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_client.resources.schedules import ScheduleItem, ScheduleRun
from fairlead_client.resources.sessions import BindingHistoryItem, SessionSummary
from fairlead_client.resources.slo import SloVersion
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_data import decisions, moves, objectives, pools, records, scaling, sessions
from fairlead_testing.fakes.public_data.explained_loads import explained
from fairlead_testing.fakes.public_data.figures import figures_of, figures_of_instance
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES, SLO_TTFT, cell, heatmap_of


@dataclass(kw_only=True)
class World:
    """The state that the fake API serves; tests may change it."""

    now: datetime
    spec_changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each pool, the merge patch of its spec that applied plans add up to."""
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    """The annotations that plans gave to instances, by instance."""
    pods_gone: set[str] = field(default_factory=set)
    desired: dict[str, int] = field(default_factory=lambda: {CHAT: 8, CODE: 4})
    roles_wanted: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each pool of prefill and decode, the desired number of instances of each role."""
    owner: dict[str, str | None] = field(default_factory=lambda: {CHAT: None, CODE: None})
    engines_files: dict[str, str] = field(default_factory=dict)
    selectors: dict[str, str] = field(default_factory=dict)
    scale_targets: dict[str, str] = field(default_factory=dict)
    behind: dict[str, float] = field(default_factory=dict)
    """For each pool, the seconds by which its roll-ups lag."""
    reported: dict[str, datetime] = field(default_factory=dict)
    """For each pool, when the operator reported it after a plan was applied."""
    percentile: dict[str, float] = field(default_factory=lambda: {CHAT: 90.0, CODE: 90.0})
    starting: set[str] = field(default_factory=set)
    asleep: set[str] = field(default_factory=set)
    """The instances that sleep."""
    waking: set[str] = field(default_factory=set)
    well: set[str] = field(default_factory=lambda: {CHAT})
    attainment: dict[str, float | None] = field(default_factory=lambda: {CHAT: 0.954, CODE: 0.871})
    extra_revisions: list[PoolRevision] = field(default_factory=list)
    slo_changed: bool = True
    extra_migrations: list[Migration] = field(default_factory=list)
    extra_decisions: list[RoutingDecision] = field(default_factory=list)
    schedules: list[ScheduleItem] = field(default_factory=lambda: [example(ScheduleItem)])
    schedule_runs: list[ScheduleRun] = field(default_factory=lambda: [example(ScheduleRun)])
    pools_known: list[str] = field(default_factory=lambda: [CHAT, CODE])
    _sessions: list[SessionSummary] = field(default_factory=list)
    _counted: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def instance(self, pool: str, name: str) -> InstanceSummary:
        index = INSTANCES[pool].index(name)
        state = (
            {6: InstanceState.WARMING, 7: InstanceState.DRAINING}.get(index, InstanceState.SERVING)
            if pool == CHAT
            else (InstanceState.LOST if index == 3 and pool not in self.well else InstanceState.SERVING)
        )
        state = InstanceState.STARTING if pool in self.starting and index == 0 else state
        state = InstanceState.ASLEEP if name in self.asleep else InstanceState.STARTING if name in self.waking else state
        idle = name in self.asleep | self.waking
        at = self.now.timestamp()
        hit, ttft, usage = (cell(pool, name, metric, at) for metric in ("hit_rate", "ttft_p95", "kv_usage"))
        return InstanceSummary(
            id=name,
            pool=pool,
            state=state,
            role=self._role(pool, index),
            address=f"127.40.0.{index + 1}:8000",
            node="sandbox",
            reason="Waking"
            if name in self.waking
            else {"Warming": "FirstTokens", "Draining": "ScaledDown", "Lost": "PodFailed", "Asleep": "ScaledDown"}.get(state, "Ready"),
            weight=0.4 if state == "Warming" else weight_of(self.marks.get(name, {}).get("fairlead.dev/weight")),
            key_share=0.0 if idle or state in ("Draining", "Lost") else round(1 / 7 + (index - 3) * 0.006, 4),
            restarts=1 if state == "Lost" else 0,
            created_at=self.now - timedelta(hours=30 - index),
            state_since=self.now - timedelta(minutes=3 + 17 * index),
            in_flight=0 if idle else int(cell(pool, name, "in_flight", at) or 0),
            running=0 if idle else int(cell(pool, name, "running", at) or 0),
            waiting=0 if idle else int(cell(pool, name, "waiting", at) or 0),
            pending_prefill_tokens=0 if idle else int(cell(pool, name, "pending_prefill_tokens", at) or 0),
            kv_usage=None if idle else usage,
            bound_sessions=0 if idle else self._bound()[pool, name],
            hit_rate=None if idle else hit,
            ttft_p95_seconds=None if idle else ttft,
        )

    def _role(self, pool: str, index: int) -> Role:
        """Return the role of the instance at `index`: in a pool of two roles, the first ones prefill, as many as are
        desired.
        """
        wanted = self.roles_wanted.get(pool)
        return Role.BOTH if wanted is None else Role.PREFILL if index < wanted[Role.PREFILL] else Role.DECODE

    def instances(self, pool: str) -> list[InstanceSummary]:
        return [self.instance(pool, name) for name in INSTANCES[pool]]

    def pool(self, pool: str) -> PoolSummary:
        namespace, name = pool.split("/")
        found = self.instances(pool)
        serving = sum(one.state == "Serving" for one in found)
        chat, starting, well = pool == CHAT, pool in self.starting, pool in self.well
        behind = self.behind.get(pool, 0.0)
        return PoolSummary(
            namespace=namespace,
            name=name,
            model="Qwen/Qwen3-32B" if chat else "deepseek-ai/DeepSeek-Coder-V2-Lite",
            engine="simulated",
            policy="dualmap" if chat else "ear",
            ready=well and not starting,
            ready_reason="InstancesStarting" if starting else "AllServing" if well else "InstancesLost",
            ready_message=f"{serving} of {self.desired[pool]} instances serve" if starting or not well else "",
            desired=self.desired[pool],
            serving=serving,
            draining=sum(one.state == "Draining" for one in found),
            asleep=sum(one.state == "Asleep" for one in found),
            attainment=None if behind else self.attainment[pool],
            slo_percentile=self.percentile[pool],
            ttft_slo_seconds=SLO_TTFT[pool],
            ttft_p50_seconds=None if behind else 0.412 if chat else 0.733,
            ttft_p95_seconds=None if behind else 3.904 if chat else 3.118,
            ttft_at_percentile_seconds=None if behind else 3.204 if chat else 2.61,
            hit_rate=None if behind else 0.687 if chat else 0.541,
            requests_per_second=None if behind else 14.2 if chat else 3.4,
            rejections_per_second=0.6 if chat else 0.0,
            sessions_moved=11 if chat else 1,
            requests_rerouted=4 if chat else 0,
            figures_behind_seconds=behind,
            table_version=214 if chat else 31,
            state_digest=f"{self.desired[pool]}-{serving}",
            owner=self.owner[pool],
            engines_file=self.engines_files.get(pool),
            selector=self.selectors.get(pool),
            scale_target=self.scale_targets.get(pool),
            migrations=self.spec_changes.get(pool, {}).get("routing", {}).get("migrations") or "Enabled",
            created_at=self.now - timedelta(days=3, hours=4),
        )

    def figures_by_instance(self, pool: str, start: datetime, end: datetime) -> FiguresByInstance:
        of_pool = self.figures(pool, start, end)
        alike = figures_of_instance(of_pool, len(INSTANCES[pool]))
        return FiguresByInstance(
            pool=pool,
            start=of_pool.start,
            end=of_pool.end,
            instances={one.id: alike for one in self.instances(pool)},
            complete_until=of_pool.complete_until,
        )

    def figures(self, pool: str, start: datetime, end: datetime) -> RangeFigures:
        return figures_of(self.pool(pool), start, end, self.now, self.behind.get(pool, 0.0))

    def desired_of(self, pool: str) -> dict[str, int]:
        """Return the pool's desired instances by role."""
        return self.roles_wanted.get(pool) or {Role.BOTH.value: self.desired[pool]}

    def template_revisions(self, pool: str) -> list[StoredRevision]:
        """Return two revisions: the present engine, and an earlier engine that prefilled more slowly."""
        before = revision_data(self.spec(pool))
        before["engine"] = {**before["engine"], "prefillTokensPerSecond": 5000}
        made = self.now - timedelta(hours=30)
        return [
            StoredRevision(name="chat-4f1c2ab901", number=1, created_at=made, data=before),
            StoredRevision(name="chat-9d20e7c6b5", number=2, created_at=self.now - timedelta(hours=2), data=revision_data(self.spec(pool))),
        ]

    def status(self, pool: str) -> dict[str, Any]:
        """Return the fields of a pool's status that the API passes on."""
        wanted = self.desired[pool]
        message = "2 instances still have the old template"
        return {
            "conditions": [{"type": "Progressing", "status": "True", "reason": "RollingOut", "message": message}],
            "rollout": {"key": "k", "beganAt": (self.now - timedelta(minutes=4)).strftime("%Y-%m-%dT%H:%M:%SZ")},
            "roles": [{"name": "both", "desired": wanted, "ready": wanted, "updated": max(0, wanted - 2)}],
            "currentRevision": "chat-4f1c2ab901",
            "updateRevision": "chat-9d20e7c6b5",
        }

    def annotations(self, instance: str) -> dict[str, Any]:
        """Return the annotations of the instance's pod that plans change."""
        return dict(self.marks.get(instance, {}))

    def spec(self, pool: str, revision: int | None = None) -> dict[str, Any]:
        found = self.pool(pool)
        spec: dict[str, Any] = {
            "model": found.model,
            "replicas": self.desired[pool],
            "roles": [{"name": "both", "minReplicas": 0, "maxReplicas": 64}],
            "engine": {"type": "simulated", "port": 8000, "prefillTokensPerSecond": 6250, "kvCacheTokens": 1198372},
            "routing": {
                "policy": found.policy,
                "parameters": {"slo_fraction": 0.8} if pool == CHAT else {},
                "blockTokens": 512,
                "anchorsPerInstance": 160,
                "session": {"header": "x-session-id", "ttl": "30m"},
            },
            "slo": {"ttft": "5s" if pool == CHAT else "2500ms", "tpot": "100ms", "percentile": 90},
            "earlyRejection": {"mode": "Load" if pool == CHAT else "Disabled", "headroom": 1.0},
            "scaling": {
                "mode": "Fixed",
                "targetLoad": 0.8,
                "zero": {"idleAfter": "10m", "holdFor": "2m", "heldRequests": 1024},
            },
            "ratio": {"mode": "Fixed", "method": "RoleFlip", "band": 0.3, "cooldown": "120s"},
            "drain": {"timeout": "120s"},
            "rollout": {"paused": False, "maxSurge": 1, "maxUnavailable": 0},
        }
        if revision is None:
            return merged(spec, self.spec_changes.get(pool, {}))
        spec["replicas"] = (4, 6, 8, 8)[min(revision, 4) - 1] if pool == CHAT else 4
        if revision < 3:
            spec["routing"] |= {"policy": "ear", "parameters": {}}
        spec["earlyRejection"]["mode"] = "Disabled" if revision < 4 else spec["earlyRejection"]["mode"]
        return spec

    def revisions(self, pool: str) -> list[PoolRevision]:
        extra = self.extra_revisions if pool == CHAT else []
        return [*extra, *pools.revisions(self.now, pool, lambda number: self.spec(pool, number))]

    def conditions(self, pool: str) -> list[PoolCondition]:
        return pools.conditions(self.now, self.pool(pool))

    def events(self, pool: str) -> list[PoolEventItem]:
        return pools.events(self.now, pool)

    def slo(self, pool: str) -> list[SloVersion]:
        return objectives.versions(self.now, pool, self.attainment[pool])

    def conditions_of_engine(self, instance: str) -> list[EngineCondition]:
        return pools.engine_conditions(instance)

    def caches(self) -> list[CacheKnowledge]:
        return pools.caches()

    def capability(self, pool: str) -> EngineCapability:
        return pools.capability(pool)

    def learnt(self, pool: str) -> list[LearntOfEngines]:
        return pools.learnt(pool)

    def held(self, pool: str, instance: str) -> SessionsHeld:
        return sessions.held([one for one in self.sessions() if (one.pool, one.instance) == (pool, instance)])

    def transitions(self, one: InstanceSummary) -> list[InstanceTransition]:
        return pools.transitions(self.now, one)

    def sessions(self) -> list[SessionSummary]:
        if not self._sessions:
            self._sessions = sessions.sessions(self.now)
        return self._sessions

    def _bound(self) -> Counter[tuple[str, str | None]]:
        """Return the number of bound sessions by pool and instance."""
        if not self._counted:
            self._counted = Counter((one.pool, one.instance) for one in self.sessions())
        return self._counted

    def history(self, session: SessionSummary) -> list[BindingHistoryItem]:
        return sessions.history(session)

    def migrations(self) -> list[Migration]:
        return moves.migrations(self.now, self.sessions(), self.extra_migrations)

    def reroutes(self) -> list[ReRoute]:
        return moves.reroutes(self.now)

    def decisions(self) -> list[RoutingDecision]:
        return [*self.extra_decisions, *decisions.decisions(self.now, self.sessions())]

    def rejections(self, start: datetime, end: datetime) -> list[RejectionGroup]:
        return records.rejections(start, end)

    def scaling_decisions(self) -> list[ScalingDecisionItem]:
        return scaling.scaling_decisions(self.now)

    def audit(self) -> list[AuditEntry]:
        return records.audit(self.now)

    def tokens(self) -> list[TokenItem]:
        return records.tokens(self.now)

    def heatmap(
        self, pool: str, metric: str, start: datetime, end: datetime, columns: int, aggregate: str, sort: str, group: str = "instance"
    ) -> Heatmap:
        return heatmap_of(pool, metric, start, end, columns, aggregate, sort, self.instances(pool), self.migrations(), group)

    def load_explanation(
        self, pool: str, instance: str, metric: str, start: datetime, end: datetime, limit: float | None = None
    ) -> LoadExplanation:
        return explained(pool, instance, metric, start, end, self.instances(pool), self.migrations(), self.decisions(), limit)
