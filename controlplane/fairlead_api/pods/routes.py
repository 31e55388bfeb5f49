"""Logs and events of the pods of instances, and the metrics of their engines."""

from typing import Annotated, Any

from fastapi import Depends

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.pods.reading import Cluster, Pods
from fairlead_api.pods.store import EngineAddresses, EnginePages
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_client.resources.pods import PodEvents, PodLog


def pod_routes(guard: Guard, pods: Pods, pages: EnginePages) -> Routes:
    """Return the routes under /v1/pools/{namespace}/{name}/instances/{instance}."""
    routes = Routes(prefix="/v1", tags=["pools"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    @routes.get("/pools/{namespace}/{name}/instances/{instance}/log", response_model=PodLog)
    async def get_pod_log(
        namespace: str,
        name: str,
        instance: str,
        caller: Operator,
        lines: int = 200,
        search: str = "",
        container: str | None = None,
        previous: bool = False,
    ) -> Any:
        """The last lines of the log of an instance's pod. With `search`, only lines that contain this text, among the
        last 20,000. With `previous`, the log of the container before its last restart. Needs the role operator, because
        a log may contain text of clients.
        """
        key = PoolKey(namespace=namespace, name=name)
        return answer(await pods.log(key, instance, lines, search, container, previous=previous))

    @routes.get("/pools/{namespace}/{name}/instances/{instance}/pod-events", response_model=PodEvents)
    async def get_pod_events(namespace: str, name: str, instance: str, caller: Viewer) -> Any:
        """Kubernetes events about an instance's pod, newest first, even if the pod is gone."""
        return answer(await pods.events(PoolKey(namespace=namespace, name=name), instance))

    @routes.get("/pools/{namespace}/{name}/instances/{instance}/metrics", response_model=EngineMetrics)
    async def get_engine_metrics(namespace: str, name: str, instance: str, caller: Viewer, search: str = "") -> Any:
        """The present metrics of an instance's engine, in groups and under the engine's own names. A histogram is shown
        by its count, its mean, and the upper bounds of the buckets that contain the median and the 95th percentile.
        With `search`, only families whose name, description or labels contain this text. At most 500 families with 40
        samples each; a metrics page of more than 4 MiB is not read.
        """
        return answer(await pages.metrics(PoolKey(namespace=namespace, name=name), instance, search))

    return routes


def feature(infra: Infra, guard: Guard, cluster: Cluster) -> Feature:
    """Return the feature of pods' logs and events, and of engines' metrics."""
    return Feature(routes=(pod_routes(guard, Pods(cluster), EnginePages(EngineAddresses(infra.reads).metrics_of, infra.clock)),))
