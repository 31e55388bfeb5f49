"""Wiring of the control API: turns settings into an ASGI app. Each subject builds its own feature, and this module
joins the features.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Protocol

from fastapi import FastAPI

from fairlead_api.access import routes as access
from fairlead_api.access.guards import Guard, Identify
from fairlead_api.advice import routes as advice
from fairlead_api.advice.sizing import LOOK_SECONDS
from fairlead_api.audit import routes as audit
from fairlead_api.autoscalers import routes as autoscalers
from fairlead_api.autoscalers.figures import LatestFigures
from fairlead_api.canaries import routes as canaries
from fairlead_api.canaries.judging import LOOK_SECONDS as JUDGING_SECONDS
from fairlead_api.comments import routes as comments
from fairlead_api.costs import routes as costs
from fairlead_api.costs.store.measuring import LOOK_SECONDS as MEASURING_SECONDS
from fairlead_api.costs.store.spending import LOOK_SECONDS as BUDGET_SECONDS
from fairlead_api.decisions import routes as decisions
from fairlead_api.features import infra_of, running
from fairlead_api.forecasts import routes as forecasts
from fairlead_api.http import problems
from fairlead_api.http.documenting import openapi
from fairlead_api.http.stale import StaleReads
from fairlead_api.http.strictness import StrictBodies
from fairlead_api.http.tags import Tagging
from fairlead_api.http.telemetry import Instrument
from fairlead_api.infra.autoscaler_ports import AutoscalerPorts
from fairlead_api.loads import routes as loads
from fairlead_api.moves import routes as moves
from fairlead_api.plans import routes as plans
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_api.plans.objects import ClusterGateway
from fairlead_api.pods import routes as pods
from fairlead_api.pods.reading import Cluster as PodCluster
from fairlead_api.pools import routes as pools
from fairlead_api.rejections import routes as rejections
from fairlead_api.reports import routes as reports
from fairlead_api.scaling import routes as scaling
from fairlead_api.schedules import routes as schedules
from fairlead_api.search import routes as search
from fairlead_api.series import routes as series
from fairlead_api.sessions import routes as sessions
from fairlead_api.settings import Settings
from fairlead_api.simulations import routes as simulations
from fairlead_api.slo import routes as slo
from fairlead_api.streams import routes as streams
from fairlead_api.trees import routes as trees
from fairlead_api.trees.store.task_rollups import LOOK_SECONDS as COUNTING_SECONDS
from fairlead_api.trials import routes as trials
from fairlead_api.upkeep import routes as upkeep
from fairlead_api.upkeep.jobs import Job
from fairlead_api.webhooks import routes as webhooks

PLAIN = (
    advice,
    audit,
    canaries,
    comments,
    costs,
    decisions,
    loads,
    moves,
    pools,
    rejections,
    reports,
    scaling,
    schedules,
    search,
    series,
    sessions,
    slo,
    streams,
    trees,
    trials,
    webhooks,
)
"""The subjects whose features are created from the infrastructure alone, without another subject's feature."""


class Cluster(ClusterGateway, PodCluster, Protocol):
    """Clients of the Kubernetes API, except the client that authenticates people."""


def create_api(
    settings: Settings,
    *,
    clock: Callable[[], datetime] | None = None,
    cluster: Cluster | None = None,
    patience: float = 1.0,
    simulator: Sequence[str] = (),
    ports: AutoscalerPorts | None = None,
) -> FastAPI:
    """Create the API without the web UI. `clock` replaces the database's clock, and `cluster` the clients of the
    Kubernetes API in `settings.kubeconfig`. The database may take `patience` times as long as usual before it counts as
    busy or unreachable. `simulator` is the command of a process that simulates jobs
    (`fairlead_client.simulation_jobs`); if it is empty, nothing is simulated. `ports` are the bound ports for external
    autoscalers, such as KEDA.
    """
    infra, kubernetes = infra_of(settings, clock, patience, simulator), KubernetesCluster(settings.kubeconfig)
    callers = access.access_of(infra, kubernetes)
    guard, expected = Guard(callers, infra.clock), simulations.expectations_of(infra)
    objects: Cluster = cluster or kubernetes
    planned = plans.plans_of(infra, objects, expected)
    care, sizing = upkeep.upkeep_of(infra, planned.close_left_open), advice.sizing_of(infra)
    figures = LatestFigures(time.monotonic)
    deliveries, foreseen = webhooks.deliveries_of(infra), forecasts.forecasting_of(infra)
    proposing, foreseeing = advice.proposing_of(infra, planned, foreseen)
    judging = canaries.judging_of(infra)
    budgets, counting = costs.budgets_of(infra), trees.counting_of(infra)
    jobs: dict[str, tuple[Job, int]] = {
        "sizing": (sizing.look, LOOK_SECONDS),
        "notices": (deliveries.deliver, 1),
        "canaries": (partial(care.alone, "canaries", judging.look), JUDGING_SECONDS),
        "budgets": (partial(care.alone, "budgets", budgets.look), BUDGET_SECONDS),
        "costs": (costs.telling(infra), 30),
        "tasks": (partial(care.alone, "tasks", counting.look), COUNTING_SECONDS),
        "measured-prices": (partial(care.alone, "measured-prices", costs.measuring_of(infra).look), MEASURING_SECONDS),
        "proposals": (partial(care.alone, "proposals", proposing.look), LOOK_SECONDS),
        "forecasts": (partial(care.alone, "forecasts", foreseeing.look), forecasts.LOOK_SECONDS),
        "watching": (partial(care.alone, "watching", foreseen.watch), forecasts.LOOK_SECONDS),
    }
    features = (
        upkeep.feature(infra, guard, lambda: openapi(app), care, jobs, figures),
        access.feature(infra, guard, callers),
        plans.feature(infra, guard, objects, planned, expected),
        simulations.feature(infra, guard, planned),
        pods.feature(infra, guard, objects),
        forecasts.feature(infra, guard),
        autoscalers.feature(figures, ports or AutoscalerPorts(), kubernetes),
        *(subject.feature(infra, guard) for subject in PLAIN),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            async with running(infra, features):
                yield
        finally:
            await kubernetes.close()

    app = FastAPI(
        title="Fairlead control API",
        version=version("fairlead"),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        routes=[route for feature in features for router in feature.routes for route in router.routes],  # include_router analyses them
    )
    problems.install(app)
    app.add_middleware(StrictBodies)
    app.add_middleware(Tagging)
    app.add_middleware(StaleReads)
    app.add_middleware(Identify, access=callers, clock=infra.clock)
    app.add_middleware(Instrument, telemetry=infra.telemetry)
    app.state.telemetry = infra.telemetry
    app.state.upkeep = care
    app.state.sizing = sizing
    app.state.budgets = budgets
    app.state.counting = counting
    app.state.deliveries = deliveries
    app.state.proposing = proposing
    app.state.foreseeing = foreseeing
    app.state.foreseen = foreseen
    app.state.judging = judging
    return app
