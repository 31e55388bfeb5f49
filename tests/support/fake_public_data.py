"""A small, deterministic world for the web UI's tests: two pools, twelve instances, an hour of load, sessions, moves, refusals and an audit log.

Everything follows from `now` and fixed seeds, so a test can compute what a page must show. Names try to break pages: one session is called
`<img src=x onerror=alert(1)>`.
"""

import hashlib
import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from fairlead_client.resources import (
    METRICS,
    AuditEntry,
    BindingHistoryItem,
    CandidateTerm,
    Condition,
    Heatmap,
    HeatmapMigration,
    HeatmapRow,
    InstanceSummary,
    InstanceTransition,
    Migration,
    PoolEventItem,
    PoolRevision,
    PoolSummary,
    RejectionGroup,
    RejectionSample,
    RoutingDecision,
    SessionSummary,
    SloVersion,
    TokenItem,
)

CHAT, CODE = "default/chat", "research/code"
HOSTILE = "<img src=x onerror=alert(1)>"
SLO_TTFT = {CHAT: 5.0, CODE: 2.5}
TRIGGERS = ("hot-migration", "hot-migration", "hotspot", "slo", "drain")
LIMITS = {"kv_usage": 0.9, "ttft_p95": 5.0, "tpot_p95": 0.1}


def _suffix(seed: str) -> str:
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    digest = hashlib.sha256(seed.encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:5])


INSTANCES = {CHAT: [f"chat-b{_suffix(f'chat{i}')}" for i in range(8)], CODE: [f"code-b{_suffix(f'code{i}')}" for i in range(4)]}


def noise(*parts: object) -> float:
    """A number in 0-1 that depends on the parts only."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


def cell(pool: str, instance: str, metric: str, second: float) -> float | None:
    """Load of one instance around one moment; None where the instance had not started yet."""
    index = INSTANCES[pool].index(instance)
    minute = second / 60
    if index == 6 and minute % 60 < 9:
        return None
    wave = 0.5 + 0.5 * math.sin(minute / 7 + index * 1.7)
    burst = 1.0 if 24 < (minute % 60) < 33 else 0.0
    hot = 0.45 if index in (1, 4) and math.sin(minute / 11 + index) > 0.1 else 0.0
    load = min(1.25, 0.12 + 0.3 * wave + 0.35 * burst + hot + 0.15 * noise(instance, metric, int(second // 10)))
    match metric:
        case "pending_prefill_tokens":
            return float(round(load * 42000))
        case "kv_usage":
            return round(min(0.999, 0.25 + load * 0.55), 4)
        case "ttft_p95":
            return round(0.25 + load * load * 4.6, 4)
        case "tpot_p95":
            return round(0.021 + load * 0.055, 5)
        case "hit_rate":
            return round(max(0.05, 0.82 - load * 0.3), 4)
        case "requests":
            return round(load * 3.1, 2)
        case "failed":
            return 0.0 if load < 1.1 else 0.1
        case "running":
            return float(round(load * 24))
        case "in_flight":
            return float(round(load * 31))
        case _:
            return float(round(max(0.0, load - 0.6) * 18))


@dataclass(kw_only=True)
class World:
    """The state the fake API serves; tests may change it."""

    now: datetime
    desired: dict[str, int] = field(default_factory=lambda: {CHAT: 8, CODE: 4})
    owner: dict[str, str | None] = field(default_factory=lambda: {CHAT: None, CODE: None})
    slo_changed: bool = True
    extra_migrations: list[Migration] = field(default_factory=list)
    pools_known: list[str] = field(default_factory=lambda: [CHAT, CODE])
    _sessions: list[SessionSummary] = field(default_factory=list)

    def instance(self, pool: str, name: str) -> InstanceSummary:
        index = INSTANCES[pool].index(name)
        state = {6: "Warming", 7: "Draining"}.get(index, "Serving") if pool == CHAT else ("Lost" if index == 3 else "Serving")
        at = self.now.timestamp()
        hit, ttft, usage = (cell(pool, name, metric, at) for metric in ("hit_rate", "ttft_p95", "kv_usage"))
        return InstanceSummary(
            id=name,
            pool=pool,
            state=state,
            role="both",
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
        chat = pool == CHAT
        return PoolSummary(
            namespace=namespace,
            name=name,
            model="Qwen/Qwen3-32B" if chat else "deepseek-ai/DeepSeek-Coder-V2-Lite",
            engine="simulated",
            policy="dualmap" if chat else "ear",
            ready=chat,
            ready_reason="AllReady" if chat else "InstancesMissing",
            ready_message="" if chat else "3 of 4 instances are ready",
            desired=self.desired[pool],
            serving=serving,
            draining=sum(one.state == "Draining" for one in found),
            attainment=0.954 if chat else 0.871,
            ttft_slo_seconds=SLO_TTFT[pool],
            ttft_p50_seconds=0.412 if chat else 0.733,
            ttft_p95_seconds=3.904 if chat else 3.118,
            hit_rate=0.687 if chat else 0.541,
            requests_per_second=14.2 if chat else 3.4,
            rejections_per_second=0.6 if chat else 0.0,
            migrations_per_hour=118.0 if chat else 12.0,
            table_version=214 if chat else 31,
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
            "earlyRejection": {"mode": "Load" if pool == CHAT else "Off", "headroom": 1.0},
            "drain": {"timeout": "120s", "migrateSessions": True},
        }
        if revision is not None:
            spec["replicas"] = (4, 6, 8, 8)[min(revision, 4) - 1] if pool == CHAT else 4
            spec["routing"]["policy"] = "ear" if revision < 3 else found.policy
            spec["earlyRejection"]["mode"] = "Off" if revision < 4 else spec["earlyRejection"]["mode"]
        return spec

    def revisions(self, pool: str) -> list[PoolRevision]:
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

    def conditions(self, pool: str) -> list[Condition]:
        ready = pool == CHAT
        since = self.now - timedelta(minutes=41)
        return [
            Condition(
                type="Ready",
                status=str(ready),
                reason=self.pool(pool).ready_reason,
                message="All instances serve." if ready else "One pod failed.",
                since=since,
            ),
            Condition(type="RingSynced", status="True", reason="Acknowledged", message="All live routers use table 214.", since=since),
            Condition(
                type="SLOMet",
                status=str(ready),
                reason="Attained" if ready else "Missed",
                message="Attainment over 5 minutes.",
                since=since,
            ),
            Condition(type="Progressing", status="True", reason="Draining", message="1 instance drains.", since=since),
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
                    session=HOSTILE if number == 1 else f"conversation-{number:04d}-{_suffix(str(number))}",
                    instance=None if number == 90 else names[int(noise("home", number) * min(6, len(names)))],
                    version=1 + number % 3,
                    reason=("cold", "hot-migration", "drain")[number % 3],
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
                    reason="cold" if version == 1 else session.reason if session.reason != "cold" else "hotspot",
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
            random = Random(number)
            pool = CHAT if number % 5 else CODE
            source, target = random.sample(INSTANCES[pool], 2)
            stay, move = 3 + random.random() * 4, 0.4 + random.random() * 2
            actual = None if number == 0 else move * (0.8 + random.random() * (2.8 if number % 6 == 0 else 0.5))
            mine = [one for one in sessions if one.pool == pool]
            found.append(
                Migration(
                    id=f"m-{number:04d}",
                    pool=pool,
                    kind="request" if number % 7 == 3 else "session",
                    session=None if number % 7 == 3 else (HOSTILE if number == 4 else mine[number % len(mine)].session),
                    request=f"req-{number:05d}",
                    source=source,
                    target=target,
                    trigger=TRIGGERS[number % len(TRIGGERS)],
                    at=self.now - timedelta(seconds=12 + number * 26 + (number % 7) * 5),
                    router=f"router-{number % 2}",
                    predicted_source_ttft_seconds=stay,
                    predicted_target_ttft_seconds=move,
                    benefit_seconds=stay - move,
                    actual_ttft_seconds=actual,
                    tokens_moved=0,
                    tokens_recomputed=2000 + int(random.random() * 30000),
                    outcome="failed" if number == 11 else "completed",
                    paid_off=None if actual is None else actual < stay,
                )
            )
        return sorted(found, key=lambda one: one.at, reverse=True)

    def decisions(self) -> list[RoutingDecision]:
        sessions, found = self.sessions(), []
        reasons = ("prefix-affinity", "session-bound", "session-cold", "slo-overloaded", "hotspot-migrated", "session-bound")
        for number in range(120):
            random = Random(1000 + number)
            pool = CHAT if number % 3 else CODE
            mine = [one for one in sessions if one.pool == pool]
            prompt = 1200 + random.randrange(30000)
            candidates = []
            for name in random.sample(INSTANCES[pool], 3):
                hit = int(prompt * random.random() * 0.9) // 512 * 512
                pending = random.randrange(20000)
                predicted = (prompt - hit + pending) / 6250
                terms = {"queue": pending / 6250, "prefill": (prompt - hit) / 6250}
                candidates.append(
                    CandidateTerm(
                        instance=name,
                        hit_tokens=hit,
                        miss_tokens=prompt - hit,
                        pending_tokens=pending,
                        predicted_ttft_seconds=predicted,
                        total=predicted,
                        terms=terms,
                    )
                )
            ranked = sorted(candidates, key=lambda one: one.total)
            found.append(
                RoutingDecision(
                    id=f"d-{number:04d}",
                    pool=pool,
                    request=f"req-{number:05d}",
                    session=HOSTILE if number == 2 else mine[number % len(mine)].session,
                    at=self.now - timedelta(seconds=2 + number * 21),
                    router=f"router-{number % 2}",
                    policy="dualmap" if pool == CHAT else "ear",
                    table_version=214,
                    chosen=ranked[0].instance,
                    runner_up=ranked[1].instance,
                    reason=reasons[number % len(reasons)],
                    prompt_tokens=prompt,
                    queued_seconds=random.random() * 0.4,
                    ttft_seconds=ranked[0].predicted_ttft_seconds * (0.8 + random.random() * 0.4),
                    sample_rate=0.05,
                    candidates=candidates,
                )
            )
        return found

    def rejections(self, start: datetime, end: datetime) -> list[RejectionGroup]:
        texts = (
            (
                CHAT,
                "rejected-predicted-ttft",
                412,
                "Raise spec.replicas, or earlyRejection.headroom if a slower first token is acceptable.",
            ),
            (CHAT, "rejected-queue-full", 37, "The router's queue is full for seconds at a time: raise spec.replicas."),
            (CODE, "rejected-no-endpoints", 5, "No instance served: look at the pool's conditions."),
        )
        total = sum(count for _, _, count, _ in texts)
        found = []
        for pool, reason, count, suggestion in texts:
            line = [int(noise(reason, bucket) * count / 20 * (3 if 14 < bucket < 24 else 0.4)) for bucket in range(40)]
            line[18] += count - sum(line)
            samples = [
                RejectionSample(
                    at=end - timedelta(minutes=4 * n + 2),
                    request=f"req-9{n:04d}",
                    prompt_tokens=18000 + n * 700,
                    retry_after_seconds=3.0 + n,
                    predicted_ttft_seconds=None if pool == CODE else 6.2 + n,
                )
                for n in range(3)
            ]
            found.append(
                RejectionGroup(
                    pool=pool,
                    reason=reason,
                    status=503 if pool == CODE else 429,
                    count=count,
                    share=count / total,
                    first_at=start + timedelta(minutes=7),
                    last_at=end - timedelta(minutes=2),
                    sparkline=line,
                    samples=samples,
                    suggestion=suggestion,
                )
            )
        return found

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
        found = []
        for number in range(60, 0, -1):
            kind = number % 4
            action = ("plan.apply", "login", "token.create", "pool.change")[kind]
            found.append(
                AuditEntry(
                    id=number,
                    at=self.now - timedelta(minutes=(60 - number) * 7 + 1),
                    actor=("ada", "grace", HOSTILE, "operator")[kind] if number == 58 else ("ada", "grace", "ada", "operator")[kind],
                    role=("operator", "viewer", "admin", "system")[kind],
                    source="127.0.0.1",
                    action=action,
                    object=CHAT if kind in (0, 3) else "web-session" if kind == 1 else "token/ci",
                    reason="Evening peak" if kind == 0 else None,
                    before={"replicas": 6, "routing": {"policy": "ear"}} if kind in (0, 3) else None,
                    after={"replicas": 8, "routing": {"policy": "dualmap"}} if kind in (0, 3) else None,
                    result="denied" if number % 13 == 0 else "ok",
                    request_id=f"r-{number:06d}",
                    plan=f"p-{number:04d}" if kind == 0 else None,
                    chain=hashlib.sha256(str(number).encode()).hexdigest(),
                )
            )
        return found

    def tokens(self) -> list[TokenItem]:
        return [
            TokenItem(
                id="t-1",
                name="ci",
                role="viewer",
                created_at=self.now - timedelta(days=20),
                created_by="ada",
                expires_at=self.now + timedelta(days=70),
                last_used_at=self.now - timedelta(minutes=8),
                revoked_at=None,
            ),
            TokenItem(
                id="t-2",
                name="old laptop",
                role="admin",
                created_at=self.now - timedelta(days=80),
                created_by="ada",
                expires_at=self.now + timedelta(days=10),
                last_used_at=None,
                revoked_at=self.now - timedelta(days=2),
            ),
        ]

    def transitions(self, one: InstanceSummary) -> list[InstanceTransition]:
        steps = [
            (70, None, "Pending", "Created"),
            (69, "Pending", "Starting", "Scheduled"),
            (68, "Starting", "Warming", "Ready"),
            (66, "Warming", "Serving", "Warm"),
        ]
        if one.state not in ("Serving", "Warming"):
            steps.append((4, "Serving", one.state, one.reason))
        return [
            InstanceTransition(at=self.now - timedelta(minutes=ago), before=before, after=after, reason=reason)
            for ago, before, after, reason in steps
        ]

    def heatmap(self, pool: str, metric: str, start: datetime, end: datetime, columns: int, aggregate: str, sort: str) -> Heatmap:
        seconds = (end - start).total_seconds()
        step = max(1, math.ceil(seconds / columns))
        step = next((nice for nice in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600) if nice >= step), step)
        first = start.timestamp() // step * step
        count = max(1, math.ceil((end.timestamp() - first) / step))
        limit = SLO_TTFT[pool] if metric == "ttft_p95" else LIMITS.get(metric)
        rows = []
        for one in self.instances(pool):
            samples: list[float | None] = []
            for column in range(count):
                inside = [cell(pool, one.id, metric, first + column * step + step * part / 4) for part in range(4)]
                known = [value for value in inside if value is not None]
                samples.append(None if not known else max(known) if aggregate == "max" else sum(known) / len(known))
            breaches = [] if limit is None else [column for column, value in enumerate(samples) if value is not None and value > limit]
            rows.append(HeatmapRow(instance=one.id, state=one.state, role=one.role, values=samples, breaches=breaches))
        if sort == "max":
            rows.sort(key=lambda row: -max((value for value in row.values if value is not None), default=0.0))
        elif sort == "latest":
            rows.sort(key=lambda row: -(row.values[-1] or 0.0))
        top = max((value for row in rows for value in row.values if value is not None), default=1.0)
        moves = [move for move in self.migrations() if move.pool == pool and start <= move.at < end]
        return Heatmap(
            pool=pool,
            metric=metric,
            unit=METRICS[metric],
            aggregate=aggregate,
            scale="relative" if limit is None else "absolute",
            start=datetime.fromtimestamp(first, tz=start.tzinfo),
            step_seconds=step,
            columns=count,
            maximum=top if limit is None else max(limit, 1e-9) * 1.25,
            limit=limit,
            rows=rows,
            migrations=[
                HeatmapMigration(id=move.id, at=move.at, source=move.source, target=move.target, trigger=move.trigger) for move in moves
            ],
        )
