"""A small, deterministic world for the web UI's tests: two pools, twelve instances, an hour of load, sessions, moves,
refusals and an audit log.

Everything follows from `now` and fixed seeds, so a test can compute what a page must show. Names try to break
pages: one session is called
`<img src=x onerror=alert(1)>`.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from fairlead.instances import InstanceState, Role
from fairlead.reports import BindingReason, CandidateScore, DecisionReason, MoveOutcome
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_client.resources.access import TokenItem
from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.instances import InstanceSummary, InstanceTransition
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pools import PoolCondition, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.rejections import RejectionGroup
from fairlead_client.resources.sessions import BindingHistoryItem, SessionSummary
from fairlead_client.resources.slo import SloVersion
from fairlead_testing.fakes import records as fake_records
from fairlead_testing.fakes.loads import CHAT, CODE, HOSTILE, INSTANCES, SLO_TTFT, TRIGGERS, cell, heatmap_of, name_suffix, noise


@dataclass(kw_only=True)
class World:
    """The state the fake API serves; tests may change it."""

    now: datetime
    desired: dict[str, int] = field(default_factory=lambda: {CHAT: 8, CODE: 4})
    owner: dict[str, str | None] = field(default_factory=lambda: {CHAT: None, CODE: None})
    percentile: dict[str, float] = field(default_factory=lambda: {CHAT: 90.0, CODE: 90.0})
    starting: set[str] = field(default_factory=set)
    well: set[str] = field(default_factory=lambda: {CHAT})
    attainment: dict[str, float | None] = field(default_factory=lambda: {CHAT: 0.954, CODE: 0.871})
    extra_revisions: list[PoolRevision] = field(default_factory=list)
    slo_changed: bool = True
    extra_migrations: list[Migration] = field(default_factory=list)
    pools_known: list[str] = field(default_factory=lambda: [CHAT, CODE])
    _sessions: list[SessionSummary] = field(default_factory=list)

    def instance(self, pool: str, name: str) -> InstanceSummary:
        index = INSTANCES[pool].index(name)
        state = (
            {6: InstanceState.WARMING, 7: InstanceState.DRAINING}.get(index, InstanceState.SERVING)
            if pool == CHAT
            else (InstanceState.LOST if index == 3 and pool not in self.well else InstanceState.SERVING)
        )
        state = InstanceState.STARTING if pool in self.starting and index == 0 else state
        at = self.now.timestamp()
        hit, ttft, usage = (cell(pool, name, metric, at) for metric in ("hit_rate", "ttft_p95", "kv_usage"))
        return InstanceSummary(
            id=name,
            pool=pool,
            state=state,
            role=Role.BOTH,
            address=f"127.40.0.{index + 1}:8000",
            node="sandbox",
            reason={"Warming": "FirstTokens", "Draining": "ScaledDown", "Lost": "PodFailed"}.get(state, "Ready"),
            weight=0.4 if state == "Warming" else 1.0,
            key_share=0.0 if state in ("Draining", "Lost") else round(1 / 7 + (index - 3) * 0.006, 4),
            restarts=1 if state == "Lost" else 0,
            created_at=self.now - timedelta(hours=30 - index),
            state_since=self.now - timedelta(minutes=3 + 17 * index),
            in_flight=int(cell(pool, name, "in_flight", at) or 0),
            running=int(cell(pool, name, "running", at) or 0),
            waiting=int(cell(pool, name, "waiting", at) or 0),
            pending_prefill_tokens=int(cell(pool, name, "pending_prefill_tokens", at) or 0),
            kv_usage=usage,
            bound_sessions=len([one for one in self.sessions() if one.instance == name]),
            hit_rate=hit,
            ttft_p95_seconds=ttft,
        )

    def instances(self, pool: str) -> list[InstanceSummary]:
        return [self.instance(pool, name) for name in INSTANCES[pool]]

    def pool(self, pool: str) -> PoolSummary:
        namespace, name = pool.split("/")
        found = self.instances(pool)
        serving = sum(one.state == "Serving" for one in found)
        chat, starting, well = pool == CHAT, pool in self.starting, pool in self.well
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
            attainment=self.attainment[pool],
            slo_percentile=self.percentile[pool],
            ttft_slo_seconds=SLO_TTFT[pool],
            ttft_p50_seconds=0.412 if chat else 0.733,
            ttft_p95_seconds=3.904 if chat else 3.118,
            ttft_at_percentile_seconds=3.204 if chat else 2.61,
            hit_rate=0.687 if chat else 0.541,
            requests_per_second=14.2 if chat else 3.4,
            rejections_per_second=0.6 if chat else 0.0,
            migrations_per_hour=118.0 if chat else 12.0,
            reroutes_per_hour=40.0 if chat else 3.0,
            table_version=214 if chat else 31,
            state_digest=f"{self.desired[pool]}-{serving}",
            owner=self.owner[pool],
            created_at=self.now - timedelta(days=3, hours=4),
        )

    def spec(self, pool: str, revision: int | None = None) -> dict[str, Any]:
        found = self.pool(pool)
        spec: dict[str, Any] = {
            "model": found.model,
            "replicas": self.desired[pool],
            "roles": [{"name": "both", "minReplicas": 0, "maxReplicas": 64}],
            "engine": {"type": "simulated", "port": 8000, "prefillTokensPerSecond": 6250, "kvCacheTokens": 1198372},
            "routing": {
                "policy": found.policy,
                "parameters": {"sloFraction": 0.8} if pool == CHAT else {},
                "blockTokens": 512,
                "anchorsPerInstance": 160,
                "session": {"header": "x-session-id", "ttl": "30m"},
            },
            "slo": {"ttft": "5s" if pool == CHAT else "2500ms", "tpot": "100ms", "percentile": 90},
            "earlyRejection": {"mode": "Load" if pool == CHAT else "Disabled", "headroom": 1.0},
            "drain": {"timeout": "120s", "migrateSessions": True},
        }
        if revision is not None:
            spec["replicas"] = (4, 6, 8, 8)[min(revision, 4) - 1] if pool == CHAT else 4
            spec["routing"]["policy"] = "ear" if revision < 3 else found.policy
            spec["earlyRejection"]["mode"] = "Disabled" if revision < 4 else spec["earlyRejection"]["mode"]
        return spec

    def revisions(self, pool: str) -> list[PoolRevision]:
        if pool == CHAT and self.extra_revisions:
            return [*self.extra_revisions, *replace(self, extra_revisions=[]).revisions(pool)]
        last = 4 if pool == CHAT else 1
        actors = ("kubectl-client-side-apply", "fairlead-api", "ada", "kubectl-edit")
        found = []
        for number in range(last, 0, -1):
            before = self.spec(pool, number - 1) if number > 1 else None
            spec = self.spec(pool, number)
            diff = (
                []
                if before is None
                else [
                    {"op": "replace", "path": f"/{name}", "before": before[name], "after": spec[name]}
                    for name in spec
                    if before[name] != spec[name]
                ]
            )
            found.append(
                PoolRevision(
                    number=number,
                    generation=number,
                    at=self.now - timedelta(hours=5 * (last - number) + 1),
                    actor=actors[number - 1],
                    reason="Evening peak" if number == 2 else None,
                    spec=spec,
                    diff=diff,
                )
            )
        return found

    def conditions(self, pool: str) -> list[PoolCondition]:
        found = self.pool(pool)
        ready = found.ready
        since = self.now - timedelta(minutes=41)
        return [
            PoolCondition(
                type="Ready",
                status=str(ready),
                reason=found.ready_reason,
                message="All instances serve." if ready else found.ready_message,
                since=since,
            ),
            PoolCondition(type="RingSynced", status="True", reason="Acknowledged", message="All live routers use table 214.", since=since),
            PoolCondition(
                type="SLOMet",
                status=str(ready),
                reason="Attained" if ready else "Missed",
                message="Attainment over 5 minutes.",
                since=since,
            ),
            PoolCondition(type="Progressing", status="True", reason="Draining", message="1 instance drains.", since=since),
        ]

    def events(self, pool: str) -> list[PoolEventItem]:
        names = INSTANCES[pool]
        return [
            PoolEventItem(at=self.now - timedelta(minutes=3), reason="DrainStarted", message="Scaling from 8 to 7.", instance=names[-1]),
            PoolEventItem(at=self.now - timedelta(minutes=9), reason="InstanceAdded", message="Replaces a failed pod.", instance=names[2]),
            PoolEventItem(
                at=self.now - timedelta(hours=2), reason="PolicyChanged", message="ear → dualmap, taken without restart.", instance=None
            ),
        ]

    def sessions(self) -> list[SessionSummary]:
        if not self._sessions:
            self._sessions = self._all_sessions()
        return self._sessions

    def _all_sessions(self) -> list[SessionSummary]:
        found = []
        for number in range(140):
            pool = CHAT if number % 4 else CODE
            names = INSTANCES[pool]
            at = self.now - timedelta(seconds=17 * number + 3)
            found.append(
                SessionSummary(
                    pool=pool,
                    session=HOSTILE if number == 1 else f"conversation-{number:04d}-{name_suffix(str(number))}",
                    instance=None if number == 90 else names[int(noise("home", number) * min(6, len(names)))],
                    version=1 + number % 3,
                    reason=(BindingReason.COLD, BindingReason.HOT_MIGRATION, BindingReason.DRAIN)[number % 3],
                    bound_at=at - timedelta(minutes=number % 9),
                    last_seen_at=at,
                    migrations=number % 3,
                    context_tokens=900 + int(noise("context", number) * 90000),
                )
            )
        return found

    def history(self, session: SessionSummary) -> list[BindingHistoryItem]:
        names = INSTANCES[session.pool]
        home = session.instance or names[0]
        path = [names[(names.index(home) + step) % len(names)] for step in range(session.version - 1, -1, -1)]
        found = []
        for version, name in enumerate(path, start=1):
            bound = session.bound_at - timedelta(minutes=11 * (session.version - version))
            last = version == session.version
            found.append(
                BindingHistoryItem(
                    instance=name,
                    version=version,
                    reason=BindingReason.COLD
                    if version == 1
                    else BindingReason.HOTSPOT
                    if session.reason is BindingReason.COLD
                    else session.reason,
                    bound_at=bound,
                    released_at=None if last else bound + timedelta(minutes=11),
                    router=f"router-{version % 2}",
                    migration=None if version == 1 else "m-0002",
                )
            )
        return found

    def migrations(self) -> list[Migration]:
        sessions = self.sessions()
        found = list(self.extra_migrations)
        for number in range(130):
            facts = self._move(number)
            mine = [one for one in sessions if one.pool == facts["pool"]]
            session = HOSTILE if number == 4 else mine[number % len(mine)].session
            move = Migration(id=f"m-{number:04d}", session=session, **facts)
            found.append(replace(move, explanation=explain_move(move, f"Session {session}")))
        return sorted(found, key=lambda one: one.at, reverse=True)

    def reroutes(self) -> list[ReRoute]:
        moves = [ReRoute(id=f"q-{number:04d}", session=None, **self._move(number)) for number in range(40)]
        return [replace(move, explanation=explain_move(move, f"Request {move.request}")) for move in moves]

    def _move(self, number: int) -> dict[str, Any]:
        """What migrations and re-routes have in common.

        Every ninth was predicted to cost time; the twelfth has no prediction for staying.
        """
        random = Random(number)
        pool = CHAT if number % 5 else CODE
        source, target = random.sample(INSTANCES[pool], 2)
        stay, move = 3 + random.random() * 4, 0.4 + random.random() * 2
        if number % 9 == 5:
            stay, move = move, stay
        actual = None if number == 0 else min(stay, move) * (0.8 + random.random() * (2.8 if number % 6 == 0 else 0.5))
        known = number != 11
        benefit = stay - move
        paid_off = None if actual is None or not known else False if actual >= stay else True if benefit > 0 else None
        return {
            "pool": pool,
            "request": f"req-{number:05d}",
            "source": source,
            "target": target,
            "trigger": TRIGGERS[number % len(TRIGGERS)],
            "at": self.now - timedelta(seconds=12 + number * 26 + (number % 7) * 5),
            "router": f"router-{number % 2}",
            "predicted_source_ttft_seconds": stay if known else None,
            "predicted_target_ttft_seconds": move,
            "benefit_seconds": benefit if known else None,
            "actual_ttft_seconds": actual,
            "tokens_moved": 0,
            "tokens_recomputed": 2000 + int(random.random() * 30000),
            "outcome": MoveOutcome.UNDERWAY if actual is None else MoveOutcome.FAILED if number == 11 else MoveOutcome.COMPLETED,
            "paid_off": paid_off,
            "explanation": "",
        }

    def decisions(self) -> list[RoutingDecision]:
        sessions, found = self.sessions(), []
        reasons = tuple(map(DecisionReason, ("prefix-affinity", "session-bound", "least-loaded", "prefix-outweighed", "hotspot-migrated")))
        for number in range(120):
            random = Random(1000 + number)
            pool = CHAT if number % 3 else CODE
            mine = [one for one in sessions if one.pool == pool]
            prompt = 1200 + random.randrange(30000)
            candidates = []
            for name in random.sample(INSTANCES[pool], 3):
                hit = int(prompt * random.random() * 0.9) // 512 * 512
                pending = random.randrange(20000)
                terms = {
                    "wait_seconds": pending / 6250,
                    "weighted_prefill_seconds": (prompt - hit) / 6250,
                    "kv_seconds": 0.1,
                    "prefill_seconds": (prompt - hit) / 6250,
                    "decode_tokens": 0.0,
                }
                candidates.append(
                    CandidateScore(
                        instance=name,
                        hit_tokens=hit,
                        miss_tokens=prompt - hit,
                        pending_tokens=pending,
                        predicted_ttft_seconds=(prompt - hit + pending) / 6250,
                        total=(prompt - hit + pending) / 6250 + 0.1,
                        terms=terms,
                    )
                )
            ranked = sorted(candidates, key=lambda one: one.total or 0.0)
            ground = ground_of(BUILT_IN.terms("fairlead"), "lowest-cost", {"affinity": 1.0, "in_time_seconds": 4.5})
            decision = RoutingDecision(
                id=f"d-{number:04d}",
                pool=pool,
                request=f"req-{number:05d}",
                session=HOSTILE if number == 2 else mine[number % len(mine)].session,
                at=self.now - timedelta(seconds=2 + number * 21),
                router=f"router-{number % 2}",
                policy="fairlead",
                table_version=214,
                chosen=ranked[0].instance,
                runner_up=ranked[1].instance,
                reason=reasons[number % len(reasons)],
                prompt_tokens=prompt,
                queued_seconds=random.random() * 0.4,
                ttft_seconds=ranked[0].predicted_ttft_seconds * (0.8 + random.random() * 0.4),
                sample_rate=0.05,
                candidates=ranked,
                rule=ground.rule,
                terms=list(ground.terms),
                parts=list(ground.parts),
                limits=list(ground.limits),
                considered=len(INSTANCES[pool]),
                passed_over=None,
                served_by=ranked[0].instance,
            )
            found.append(replace(decision, explanation=explain(decision)))
        return found

    def rejections(self, start: datetime, end: datetime) -> list[RejectionGroup]:
        return fake_records.rejections(start, end)

    def slo(self, pool: str) -> list[SloVersion]:
        return [
            SloVersion(
                version=version,
                pool=pool,
                ttft_seconds=SLO_TTFT[pool] + (2 - version),
                tpot_seconds=0.1,
                percentile=90.0,
                active_from=self.now - timedelta(hours=40 if version == 1 else 6),
                active_until=self.now - timedelta(hours=6) if version == 1 else None,
                attainment=0.973 if version == 1 else self.pool(pool).attainment,
                requests=812_004 if version == 1 else 64_311,
            )
            for version in (2, 1)
        ]

    def audit(self) -> list[AuditEntry]:
        return fake_records.audit(self.now)

    def tokens(self) -> list[TokenItem]:
        return fake_records.tokens(self.now)

    def transitions(self, one: InstanceSummary) -> list[InstanceTransition]:
        steps: list[tuple[int, InstanceState | None, InstanceState, str]] = [
            (70, None, InstanceState.PENDING, "Created"),
            (69, InstanceState.PENDING, InstanceState.STARTING, "Scheduled"),
            (68, InstanceState.STARTING, InstanceState.WARMING, "Ready"),
            (66, InstanceState.WARMING, InstanceState.SERVING, "Warm"),
        ]
        if one.state not in (InstanceState.SERVING, InstanceState.WARMING):
            steps.append((4, InstanceState.SERVING, one.state, one.reason))
        return [
            InstanceTransition(at=self.now - timedelta(minutes=ago), before=before, after=after, reason=reason)
            for ago, before, after, reason in steps
        ]

    def heatmap(self, pool: str, metric: str, start: datetime, end: datetime, columns: int, aggregate: str, sort: str) -> Heatmap:
        return heatmap_of(pool, metric, start, end, columns, aggregate, sort, self.instances(pool), self.migrations())
