"""Wiring of the control API: settings in, an ASGI app out. The only place that joins routes, services and store."""

import asyncio
import contextlib
import importlib
import secrets
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import text
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.routing.rings import key_shares
from fairlead_api import problems
from fairlead_api.routes.access import access_routes
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.health import health_routes
from fairlead_api.routes.internal import internal_routes
from fairlead_api.services.access import Access, Bootstrap, digest
from fairlead_api.services.ingestion import Ingestion
from fairlead_api.services.pool_mirroring import PoolMirroring
from fairlead_api.services.table_stream import TableStream
from fairlead_api.settings import Settings
from fairlead_api.store.access import PostgresAccess
from fairlead_api.store.database import Database, make_engine
from fairlead_api.store.notifying import listen
from fairlead_api.store.partitions import Partitions
from fairlead_api.store.pools import PostgresPools
from fairlead_api.store.reports import PostgresReports
from fairlead_api.store.streams import PostgresStream
from fairlead_api.store.upgrading import upgrade
from fairlead_api.telemetry import Instrument, Telemetry

API_PATHS = ("/v1", "/internal", "/healthz", "/readyz", "/metrics", "/openapi.json")
"""What the API answers itself; everything else is the web UI's."""


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def create_app(settings: Settings, *, clock: Callable[[], datetime] = utc_now) -> ASGIApp:
    """The API with the web UI beside it (if `settings.web`). Nothing is connected or migrated before the app's lifespan starts."""
    api = create_api(settings, clock=clock)
    if not settings.web:
        return api
    web = importlib.import_module("fairlead_web.app").create_web_app(
        api_url="http://fairlead-api", api_transport=httpx.ASGITransport(app=api), public_url=settings.public_url
    )
    return BesideWeb(api, web)


class BesideWeb:
    """Sends API paths to the API and all others to the web UI; lifespan belongs to the API."""

    def __init__(self, api: ASGIApp, web: ASGIApp) -> None:
        self._api = api
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        ours = scope["type"] != "http" or any(path == prefix or path.startswith(f"{prefix}/") for prefix in API_PATHS)
        await (self._api if ours else self._web)(scope, receive, send)


def create_api(settings: Settings, *, clock: Callable[[], datetime] = utc_now) -> FastAPI:
    """The API alone."""
    telemetry = Telemetry()
    database = Database(make_engine(settings.database_url))
    partitions = Partitions(database.engine)
    streams = PostgresStream(database)
    stream = TableStream(streams, heartbeat_seconds=settings.heartbeat_seconds)
    telemetry.subscribers.set_function(lambda: stream.subscribers)
    bootstrap = tuple(Bootstrap(role=token.role, name=token.name, key=digest(token.secret)) for token in settings.bootstrap_tokens)
    access = Access(PostgresAccess(database), bootstrap, lambda: secrets.token_urlsafe(32), open_to_all=settings.auth_mode == "none")
    guard = Guard(access, clock)
    mirroring = PoolMirroring(PostgresPools(database, lambda: f"drain-{uuid.uuid4().hex}"), key_shares)
    ingestion = Ingestion(PostgresReports(database, partitions), oldest_days=settings.retention.load_samples_days)

    async def ready() -> None:
        async with database.reading() as connection:
            await connection.execute(text("SELECT 1"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if settings.migrate:
            await asyncio.to_thread(upgrade, settings.database_url)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(database.close)
            await stack.enter_async_context(running(partial(listen, settings.database_url, stream.on_notice, stream.on_gap)))
            yield

    app = FastAPI(
        title="Fairlead control API",
        version="0.1.0",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    app.add_middleware(Instrument, telemetry=telemetry)
    app.include_router(health_routes(app, guard, ready, telemetry.exposition))
    app.include_router(access_routes(guard, access, clock))
    app.include_router(internal_routes(guard, mirroring, ingestion, stream, streams, telemetry.count_ignored, clock))
    return app


@asynccontextmanager
async def running(work: Callable[[], Any]) -> AsyncIterator[None]:
    """Runs `work` as a task for the length of the context."""
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
