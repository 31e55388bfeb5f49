"""Two APIs for the same test cases: the real public API on Postgres with a short history, and the fake with which the
web UI is tested.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.scaling.recommendations import Verdict
from fairlead.tables import PoolKey
from fairlead_api.plans.rollouts import StoredRevision
from fairlead_client.client import ControlApi
from fairlead_client.resources.access import AccessRole
from fairlead_testing.builders.scaling import a_scaling_decision
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.api import CHAT, SECRETS, SPEC, a_binding, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.waiting import PATIENCE_SECONDS

PRICED = {**SPEC, "cost": {"currency": "EUR", "perInstanceHour": "2.50"}}


@dataclass(kw_only=True)
class Heard(httpx.AsyncBaseTransport):
    """A transport that forwards requests and keeps the last JSON document that was answered."""

    inner: httpx.AsyncBaseTransport
    document: Any = None
    paths: list[str] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.inner.handle_async_request(request)
        self.paths.append(request.url.path)
        if response.headers.get("content-type", "").startswith(("application/json", "application/problem")):
            content = await response.aread()
            self.document = json.loads(content or b"null")
            return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(content), request=request)
        return response


@dataclass(frozen=True, kw_only=True)
class Door:
    """An API behind its shipped client. `replicas` is the present number of replicas of `pool`."""

    name: str
    heard: Heard
    base: ControlApi
    tokens: dict[AccessRole, str]
    pool: PoolKey
    replicas: int

    def as_role(self, role: AccessRole) -> ControlApi:
        return self.base.with_token(self.tokens[role])

    @property
    def viewer(self) -> ControlApi:
        return self.as_role(AccessRole.VIEWER)

    @property
    def operator(self) -> ControlApi:
        return self.as_role(AccessRole.OPERATOR)

    @property
    def admin(self) -> ControlApi:
        return self.as_role(AccessRole.ADMIN)


@asynccontextmanager
async def fake_door() -> AsyncIterator[Door]:
    """Yield the fake API over its usual world."""
    world = World(now=datetime.now(UTC))
    heard = Heard(inner=StreamingAsgiTransport(FakePublicApi(world).app))
    tokens = {role: f"{role}-token" for role in (AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN)}
    async with ControlApi("http://api.test", None, heard) as base:
        yield Door(name="fake", heard=heard, base=base, tokens=tokens, pool=CHAT, replicas=world.desired[str(CHAT)])


@asynccontextmanager
async def real_door(database_url: str) -> AsyncIterator[Door]:
    """Yield the API on Postgres with a pool of two instances, a session that moved, a re-route, decisions, refusals and
    load.
    """
    cluster = FakeClusterGateway()
    former: dict[str, Any] = {"engine": {"prefillTokensPerSecond": 5000}, "roles": []}
    present: dict[str, Any] = {"engine": {}, "roles": []}
    status = {"currentRevision": "chat-1", "updateRevision": "chat-1", "roles": [{"name": "both", "desired": 2, "ready": 2, "updated": 2}]}
    cluster.add(CHAT, 2, status=status)
    cluster.history = [
        StoredRevision(name="chat-0", number=1, created_at=datetime.now(UTC), data=former),
        StoredRevision(name="chat-1", number=2, created_at=datetime.now(UTC), data=present),
    ]
    cluster.add_instance(CHAT, "a")
    async with running_api(database_url, overrides={"cluster": cluster}) as api:
        now = datetime.now(UTC).timestamp()
        scaled = (a_scaling_decision("scale-2", now), a_scaling_decision("scale-1", now - 60, verdict=Verdict.HELD))
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), spec=PRICED, scaling_decisions=scaled))
        first = a_binding("s1", "a", id="b-1")
        await api.router.post_report(a_report("r-1", bindings=(first,), decisions=(_decision("d-1", now), _decision("d-2", now - 1))))
        moved = a_binding("s1", "b", id="m-1", previous="a", after="b-1", reason=BindingReason.SLO)
        await api.router.post_report(
            a_report(
                "r-2",
                bindings=(moved,),
                migrations=(MigrationRecord(session="s1", **_move("m-1", now)),),
                reroutes=(ReRouteRecord(session=None, **_move("q-1", now)),),
                rejections=(_rejection(int(now) - 2),),
                loads=tuple(a_load("a", int(now) - back, kv_usage=0.5) for back in range(2, 30)),
            )
        )
        heard = Heard(inner=StreamingAsgiTransport(api.app))
        tokens = {role: SECRETS[role] for role in (AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN)}
        async with ControlApi("http://api.test", None, heard, timeout_seconds=PATIENCE_SECONDS) as base:
            yield Door(name="postgres", heard=heard, base=base, tokens=tokens, pool=CHAT, replicas=2)


def _move(name: str, now: float) -> dict[str, Any]:
    return {
        "id": name,
        "pool": CHAT,
        "request": f"req-{name}",
        "source": "a",
        "target": "b",
        "trigger": BindingReason.SLO,
        "at": now,
        "predicted_source_ttft_seconds": 2.0,
        "predicted_target_ttft_seconds": 0.5,
        "benefit_seconds": 1.5,
    }


def _decision(name: str, at: float) -> DecisionRecord:
    scores = tuple(
        CandidateScore(instance=one, hit_tokens=512, miss_tokens=88, pending_tokens=0, predicted_ttft_seconds=0.1, total=cost)
        for one, cost in (("a", 0.1), ("b", 0.4))
    )
    return DecisionRecord(
        id=name,
        pool=CHAT,
        request=f"req-{name}",
        session="s1",
        at=at,
        policy="fairlead",
        table_version=1,
        chosen="a",
        runner_up="b",
        reason=DecisionReason.SESSION_BOUND,
        prompt_tokens=600,
        weighing=Weighing(rule="lowest-cost", candidates=scores, considered=2),
    )


def _rejection(second: int) -> RejectionRecord:
    return RejectionRecord(
        pool=CHAT,
        second=second,
        reason=RejectionReason.QUEUE_FULL,
        count=3,
        status=429,
        sample_request="req-9",
        sample_prompt_tokens=700,
        retry_after_seconds=1.0,
    )
