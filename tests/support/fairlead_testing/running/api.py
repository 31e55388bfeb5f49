"""A control API running in the test's own process and event loop, with a clock to move and a client for each role, and
builders of the messages that it receives.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport, PoolState
from fairlead.reports.batches import Report
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.loads import LoadSample
from fairlead.tables import PoolKey
from fairlead_api.app import create_api
from fairlead_api.settings import BootstrapToken, Settings
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_testing.running.shared_work import share
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.running.strict_system_api import StrictSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS

share()

CHAT = PoolKey(namespace="default", name="chat")
SECRETS = {role: f"{role}-secret-0123456789" for role in ("viewer", "operator", "admin", "system-operator", "system-router")}
BOOTSTRAP = tuple(
    BootstrapToken(role, {"system-router": "router", "system-operator": "operator"}.get(role, f"test-{role}"), secret)
    for role, secret in SECRETS.items()
)
SPEC: dict[str, Any] = {"model": "tiny", "replicas": 2, "engine": {"type": "simulated"}, "routing": {"policy": "dualmap"}}


class MovingClock:
    """Wall time plus the time that a test skips. After `stop`, the clock moves only when a test skips time."""

    def __init__(self) -> None:
        self.skipped = timedelta()
        self._stopped_at: datetime | None = None

    def __call__(self) -> datetime:
        return (self._stopped_at or datetime.now(UTC)) + self.skipped

    def stop(self) -> None:
        """Stop the clock, for tests whose result must not depend on the speed of the machine."""
        self._stopped_at = datetime.now(UTC)

    def skip(self, seconds: float) -> None:
        self.skipped += timedelta(seconds=seconds)


@dataclass(kw_only=True)
class ApiInstance:
    """A running API and its clients by role."""

    app: FastAPI
    base: ControlApi
    clock: MovingClock
    router: StrictSystemApi
    """A client with the token of the routers `router`, `router-0`, `router-1`, …"""
    pool_operator: StrictSystemApi
    """A client with the token of the operator process. (`operator` is a person with the role operator.)"""

    @property
    def viewer(self) -> ControlApi:
        return self.base.with_token(SECRETS["viewer"])

    @property
    def operator(self) -> ControlApi:
        return self.base.with_token(SECRETS["operator"])

    @property
    def admin(self) -> ControlApi:
        return self.base.with_token(SECRETS["admin"])


def settings_for(database_url: str, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "migrate": False,
        "background": False,
        "simulation_processes": 0,
        "heartbeat_seconds": 0.2,
        "share_seconds": 0.0,
        "router_live_seconds": 600,
        "bootstrap_tokens": BOOTSTRAP,
        **changes,
    }
    return Settings(database_url=database_url, **values)


@asynccontextmanager
async def running_api(
    database_url: str, *, overrides: dict[str, Any] | None = None, patience: float = 100.0, **changes: Any
) -> AsyncIterator[ApiInstance]:
    """Run an API on this database until the block ends.

    `patience` multiplies its time limits for the database. Only tests of a database that is busy or away use a small
    value. All others use a large value, so that on a slow machine the database does not count as away.
    """
    clock = MovingClock()
    app = create_api(settings_for(database_url, **changes), clock=clock, patience=patience, **(overrides or {}))
    async with (
        app.router.lifespan_context(app),
        ControlApi("http://api.test", None, StreamingAsgiTransport(app), timeout_seconds=PATIENCE_SECONDS) as client,
        system_api(app, "system-router") as router,
        system_api(app, "system-operator") as pool_operator,
    ):
        strict = {"router": StrictSystemApi(router), "pool_operator": StrictSystemApi(pool_operator)}
        yield ApiInstance(app=app, base=client, clock=clock, **strict)


def system_api(app: FastAPI, role: str) -> SystemApi:
    """Return the shipped client of the internal protocol, connected to an API in this process."""
    return SystemApi("http://api.test", SECRETS[role], timeout_seconds=PATIENCE_SECONDS, transport=StreamingAsgiTransport(app))


async def until_ready(api: ApiInstance) -> None:
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http,
    ):
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.1)


def an_instance(name: str, state: InstanceState = InstanceState.SERVING, **changes: Any) -> InstanceReport:
    values: dict[str, Any] = {"address": f"127.40.0.{(sum(name.encode()) % 250) + 1}:8000", "reason": "test", "created_at": 1_700_000_000.0}
    return InstanceReport(id=name, state=state, **{"pod_uid": f"uid-{name}", "role": Role.BOTH, **values, **changes})


def a_state(*instances: InstanceReport, version: int = 1, generation: int = 1, **changes: Any) -> PoolState:
    values: dict[str, Any] = {"uid": "uid-1", "spec": SPEC, "changed_by": "kubectl", "resource_version": str(version)}
    return PoolState(generation=generation, instances=instances, **{**values, **changes})


def a_report(name: str, router: str = "router-0", at: float | None = None, **content: Any) -> Report:
    return Report(id=name, router=router, sent_at=at if at is not None else datetime.now(UTC).timestamp(), **content)


def a_binding(session: str, instance: str, **changes: Any) -> BindingChange:
    values: dict[str, Any] = {"reason": BindingReason.COLD, "at": datetime.now(UTC).timestamp(), "context_tokens": 100}
    return BindingChange(pool=CHAT, session=session, instance=instance, **{**values, **changes})


def a_load(instance: str, second: int, **changes: Any) -> LoadSample:
    values: dict[str, Any] = {"running": 1, "waiting": 0, "pending_prefill_tokens": 10, "in_flight": 1}
    return LoadSample(pool=CHAT, instance=instance, second=second, **{**values, **changes})
