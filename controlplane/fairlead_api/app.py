"""Wiring of the control API: settings in, an ASGI app out. The only place that joins routes, services and store."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI

from fairlead.routing.knowledge.rings import key_shares
from fairlead_api import tables
from fairlead_api.access.access import Access
from fairlead_api.access.cluster_rights import ClusterRights, KubernetesReviews
from fairlead_api.access.guards import Guard, Identify
from fairlead_api.access.keys import GatewayKeys, Tokens
from fairlead_api.access.logins import IdentityProvider, Logins
from fairlead_api.access.routes import access_routes, gateway_key_routes
from fairlead_api.access.store.credentials import PostgresAccess
from fairlead_api.access.store.gateway_keys import PostgresGatewayKeys
from fairlead_api.advice.asking import Advising, TrendReading
from fairlead_api.advice.routes import advice_routes
from fairlead_api.advice.sizing import Sizing
from fairlead_api.advice.store.situations import PostgresSituations
from fairlead_api.advice.store.trends import PostgresTrends
from fairlead_api.audit.routes import audit_routes, cluster_audit_routes
from fairlead_api.audit.store import PostgresAuditLog, PostgresClusterChanges
from fairlead_api.decisions.kept_sessions import KeptSessions
from fairlead_api.decisions.routes import decision_routes, kept_session_routes
from fairlead_api.decisions.store import PostgresDecisions, PostgresKeptSessions
from fairlead_api.http import problems
from fairlead_api.http.documenting import openapi
from fairlead_api.http.stale import StaleReads
from fairlead_api.http.strictness import StrictBodies, closed
from fairlead_api.http.tags import Tagging
from fairlead_api.http.telemetry import Instrument, Telemetry
from fairlead_api.infra.audit_log import PostgresAudit
from fairlead_api.infra.callers import Bootstrap, digest
from fairlead_api.infra.copying import keep_ending_suspended_copies
from fairlead_api.infra.database import CONTROL, READS, REPORTS, UPKEEP, Database
from fairlead_api.infra.notices import CredentialsRevoked, Notice, PoolDeleted, TableChanged
from fairlead_api.infra.notifying import listen
from fairlead_api.infra.partitions import Partitions
from fairlead_api.infra.pulse import Pulse
from fairlead_api.infra.sharing import Recent, Shared
from fairlead_api.infra.upgrading import upgrade
from fairlead_api.loads.explaining import LoadExplaining
from fairlead_api.loads.heatmaps import HeatmapReading, Kept
from fairlead_api.loads.store.samples import PostgresLoads
from fairlead_api.loads.store.windows import PostgresLoadWindows
from fairlead_api.moves.routes import move_routes
from fairlead_api.moves.store import PostgresMoves
from fairlead_api.oidc_settings import OidcSettings
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_api.plans.objects import ClusterGateway, PlannedObjects
from fairlead_api.plans.plans import Plans
from fairlead_api.plans.routes import plan_routes, rollout_routes
from fairlead_api.plans.store.evidence import PostgresEvidence
from fairlead_api.plans.store.plans import PostgresPlanList, PostgresPlans
from fairlead_api.plans.store.session_homes import PostgresSessionHomes
from fairlead_api.pools.mirroring import PoolMirroring
from fairlead_api.pools.routes import pool_routes, predictor_routes, ring_routes
from fairlead_api.pools.store.last_minutes import LastMinutes
from fairlead_api.pools.store.mirror import PostgresPools
from fairlead_api.pools.store.predictors import PostgresPredictors
from fairlead_api.pools.store.reads import PostgresPoolHistory, PostgresPoolReads, PostgresRings
from fairlead_api.rejections.routes import rejection_routes
from fairlead_api.rejections.store import PostgresRejections
from fairlead_api.reports.ingestion import Ingestion
from fairlead_api.reports.plausibility import Ages
from fairlead_api.reports.routes import internal_routes
from fairlead_api.reports.store.reports import PostgresReports
from fairlead_api.scaling.routes import scaling_routes
from fairlead_api.scaling.store import PostgresScaling
from fairlead_api.schedules.routes import schedule_routes
from fairlead_api.schedules.store import PostgresSchedules
from fairlead_api.search.routes import search_routes
from fairlead_api.search.store import PostgresSearch
from fairlead_api.series.reading import FigureReading, SeriesReading
from fairlead_api.series.routes import series_routes
from fairlead_api.series.store.figures import PostgresFigures
from fairlead_api.series.store.series import PostgresSeries
from fairlead_api.sessions.routes import session_routes
from fairlead_api.sessions.store.lists import PostgresSessions
from fairlead_api.settings import Retention, Settings
from fairlead_api.simulations.engine_fits import EngineFits
from fairlead_api.simulations.expectations import Expectations
from fairlead_api.simulations.processes import Simulating
from fairlead_api.simulations.routes import engine_fit_routes, simulation_routes
from fairlead_api.simulations.simulations import Simulations
from fairlead_api.simulations.store.engine_fits import PostgresEngineFits
from fairlead_api.simulations.store.simulations import PostgresSimulations
from fairlead_api.simulations.store.sizings import PostgresSizings
from fairlead_api.slo.reading import SloReading
from fairlead_api.slo.routes import slo_routes
from fairlead_api.slo.store import PostgresSlo
from fairlead_api.streams.live import Live
from fairlead_api.streams.routes import live_routes
from fairlead_api.streams.store import PostgresStream
from fairlead_api.streams.table_stream import TableStream
from fairlead_api.streams.topics import topics
from fairlead_api.upkeep.jobs import scheduled
from fairlead_api.upkeep.routes import health_routes
from fairlead_api.upkeep.store import SWEEPS, PostgresUpkeep
from fairlead_api.upkeep.upkeep import Keep, Upkeep
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_process.clock import utc_now
from fairlead_process.policies import installed_policies
from fairlead_process.tasks import Tasks


def create_api(
    settings: Settings,
    *,
    clock: Callable[[], datetime] = utc_now,
    cluster: ClusterGateway | None = None,
    patience: float = 1.0,
    simulator: Sequence[str] = (),
) -> FastAPI:
    """The API alone. `cluster` replaces the Kubernetes API of `settings.kubeconfig`; the database may take `patience`
    times as long as usual before it counts as busy or away. `simulator` is the command of a process that simulates
    jobs (`fairlead_client.simulation_jobs`); without it nothing is simulated.
    """
    telemetry = Telemetry()
    pulse = Pulse(settings.database_url, patience)
    reads, reports, control, background = (
        Database(settings.database_url, share.patient(patience), pulse) for share in (READS, REPORTS, CONTROL, UPKEEP)
    )
    partitions = Partitions(background)
    streams = PostgresStream(control)
    stream = TableStream(streams, heartbeat_seconds=settings.heartbeat_seconds)
    telemetry.subscribers.set_function(lambda: stream.subscribers)
    bootstrap = tuple(
        Bootstrap(role=AccessRole(token.role), name=token.name, key=digest(token.secret)) for token in settings.bootstrap_tokens
    )
    new_secret = partial(secrets.token_urlsafe, 32)
    kubernetes = KubernetesCluster(settings.kubeconfig)
    stored_access = PostgresAccess(control)
    access = Access(
        stored_access,
        bootstrap,
        open_to_all=settings.auth_mode == "none",
        requests_per_second=settings.requests_per_second,
        cluster=ClusterRights(KubernetesReviews(kubernetes, settings.kubernetes_audience), stored_access.namespaces)
        if settings.auth_mode == "kubernetes"
        else None,
        given=settings.oidc.given if settings.auth_mode == "oidc" else None,
    )
    logins = Logins(stored_access, access, new_secret, _identity_provider(settings.oidc) if settings.auth_mode == "oidc" else None)
    guard = Guard(access, clock)
    mirroring = PoolMirroring(PostgresPools(control), key_shares)
    audit = PostgresAudit(reads)
    recent = Recent(4 * settings.share_seconds, 20 * settings.share_seconds)
    of_hours = Recent(30 * settings.share_seconds, 120 * settings.share_seconds)
    present = Shared(settings.share_seconds)
    pool_reads = PostgresPoolReads(reads, present, LastMinutes(reads, recent))
    migrations = PostgresMoves(reads, tables.migrations, Migration, "migration", "session")
    reroutes = PostgresMoves(reads, tables.reroutes, ReRoute, "re-route", "request")
    policies = installed_policies()
    kept = Kept(seconds=timedelta(days=settings.retention.load_samples_days), tens=timedelta(days=settings.retention.rollups_10s_days))
    decisions, rejections = PostgresDecisions(reads, policies, settings.retention.decisions_days), PostgresRejections(reads, kept, clock)
    heatmaps = HeatmapReading(PostgresLoads(reads), kept)
    slo, sessions = PostgresSlo(reads), PostgresSessions(reads)
    planned = PlannedObjects(cluster or kubernetes, PostgresSessionHomes(control, clock))
    simulates = settings.simulation_processes > 0 and bool(simulator)
    evidence, new_id = PostgresEvidence(reads), partial(secrets.token_hex, 8)
    expectations = Expectations(PostgresSizings(control), evidence, new_id, enabled=simulates)
    plans = Plans(PostgresPlans(control), evidence, planned, policies, new_id, expectations)
    simulations = Simulations(PostgresSimulations(control), plans, policies, new_id, enabled=simulates)
    simulating = Simulating(PostgresSimulations(background), secrets.token_hex(8), settings.simulation_processes, simulator)
    upkeep = Upkeep(PostgresUpkeep(background, partitions), PostgresLoads(background), keep(settings.retention), plans.close_left_open)
    sizing = Sizing(PostgresSituations(background), PostgresSizings(background), new_id, enabled=simulates)
    live = Live(topics(pool_reads, migrations, reroutes, decisions, rejections), clock)
    telemetry.live.set_function(lambda: live.streams)
    ingestion = Ingestion(PostgresReports(reports, partitions), report_ages(settings.retention))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if settings.migrate:
            await asyncio.to_thread(upgrade, settings.database_url)
        async with contextlib.AsyncExitStack() as stack:
            for database in (reads, reports, control, background):
                stack.push_async_callback(database.close)
            tasks = await stack.enter_async_context(Tasks())
            tasks.start("database pulse", pulse.run)
            tasks.start("suspended copies", partial(keep_ending_suspended_copies, background, REPORTS.patient(patience).idle_seconds))
            for figures in (recent, of_hours):
                stack.push_async_callback(figures.close)
            stack.push_async_callback(kubernetes.close)
            listening = asyncio.Event()

            async def noticed(notice: Notice) -> None:
                if isinstance(notice, CredentialsRevoked):
                    access.forget_seen()
                else:
                    if isinstance(notice, TableChanged | PoolDeleted):
                        present.forget()
                        live.look_again(notice.pool)
                    await stream.on_notice(notice)

            def connected() -> None:
                access.forget_seen()
                stream.on_gap()
                listening.set()

            tasks.start("notices", partial(listen, settings.database_url, pulse, noticed, connected))
            tasks.start("shares of routers", stream.tell_others_forever)
            with contextlib.suppress(TimeoutError):  # without a database the API starts all the same and answers 503
                await asyncio.wait_for(listening.wait(), 3)
            if simulates:
                tasks.start("simulations", simulating.run)
            if settings.background:
                await stack.enter_async_context(scheduled(upkeep, sizing, audit.head, telemetry, clock))
            yield

    routers = (
        health_routes(guard, lambda: openapi(app), pulse, telemetry.exposition),
        access_routes(guard, logins, Tokens(stored_access, access, new_secret), clock, settings.kubernetes_audience),
        kept_session_routes(guard, KeptSessions(PostgresKeptSessions(control)), clock),
        gateway_key_routes(guard, GatewayKeys(PostgresGatewayKeys(control), new_secret), clock),
        pool_routes(
            guard, pool_reads, PostgresPoolHistory(reads), heatmaps, LoadExplaining(PostgresLoadWindows(reads), kept, of_hours), clock
        ),
        slo_routes(guard, slo, SloReading(slo, timedelta(days=settings.retention.rollups_1m_days)), clock),
        series_routes(guard, SeriesReading(PostgresSeries(reads)), FigureReading(PostgresFigures(reads), recent), clock),
        ring_routes(guard, PostgresRings(reads), policies),
        predictor_routes(guard, PostgresPredictors(reads, policies)),
        rollout_routes(guard, cluster or kubernetes),
        schedule_routes(guard, PostgresSchedules(reads), clock),
        session_routes(guard, sessions),
        search_routes(guard, PostgresSearch(reads, sessions, decisions, settings.retention.decisions_days)),
        move_routes(guard, migrations, reroutes, clock),
        decision_routes(guard, decisions, clock),
        scaling_routes(guard, PostgresScaling(reads), clock),
        rejection_routes(guard, rejections, clock),
        cluster_audit_routes(guard, PostgresClusterChanges(control), clock),
        audit_routes(guard, PostgresAuditLog(reads), audit, clock),
        advice_routes(guard, Advising(PostgresSituations(reads), recent), TrendReading(PostgresTrends(reads), recent), clock),
        plan_routes(guard, plans, expectations, PostgresPlanList(reads, clock), clock),
        simulation_routes(guard, simulations, clock),
        engine_fit_routes(guard, EngineFits(PostgresEngineFits(control)), clock),
        live_routes(guard, live),
        internal_routes(guard, mirroring, ingestion, PostgresPredictors(reports, policies), stream, telemetry.count_report, clock),
    )
    app = FastAPI(
        title="Fairlead control API",
        version=version("fairlead"),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        routes=[closed(route) for router in routers for route in router.routes],  # include_router would analyse every route once more
    )
    problems.install(app)
    app.add_middleware(StrictBodies)
    app.add_middleware(Tagging)
    app.add_middleware(StaleReads)
    app.add_middleware(Identify, access=access, clock=clock)
    app.add_middleware(Instrument, telemetry=telemetry)
    app.state.upkeep = upkeep
    app.state.sizing = sizing
    return app


def report_ages(retention: Retention) -> Ages:
    """Largest age at which a row is still stored: the age at which retention would delete it."""
    day = 86_400.0
    return Ages(
        decisions=day * retention.decisions_days,
        rejections=day * retention.rejections_days,
        loads=day * retention.load_samples_days,
        key_use=day * retention.rollups_1m_days,
        traffic=day * retention.traffic_days,
    )


def keep(retention: Retention) -> Keep:
    """Days to keep, by table or setting."""
    return Keep(
        partitioned={
            "load_samples": retention.load_samples_days,
            "arrivals": retention.load_samples_days,
            "slo_samples": retention.load_samples_days,
            "decisions": retention.decisions_days,
            "rejections": retention.rejections_days,
            "recorded_requests": retention.traffic_days,
        },
        plain={setting: getattr(retention, setting) for setting in SWEEPS},
    )


def _identity_provider(settings: OidcSettings) -> IdentityProvider:
    from fairlead_api.access.identity_provider import OpenIdProvider  # 16 MB of cryptography, only where it is used

    return OpenIdProvider(settings)
