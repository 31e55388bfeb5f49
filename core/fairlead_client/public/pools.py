"""Pools, their instances, their objectives and the sessions they hold."""

from collections.abc import Sequence

from fairlead.tables import PoolKey
from fairlead_client.public.calling import ApiCalls, Query, path_of, segment
from fairlead_client.resources.canaries import Canary
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.load_explanations import Differences, LoadExplanation
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pods import PodEvents, PodLog
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.predictors import Predictor
from fairlead_client.resources.rings import Ring
from fairlead_client.resources.rollouts import Rollout
from fairlead_client.resources.shadows import ShadowReport
from fairlead_client.resources.slo import SloAttainment, SloBurn, SloTaskBurn, SloTasks, SloVersion, SloWhatIf
from fairlead_client.resources.trials import Trial, TrialAnswer


class PoolCalls(ApiCalls):
    """Calls about one pool each, and the list of pools."""

    async def pools(self, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolSummary]:
        return await self._call("GET", "/v1/pools", Page[PoolSummary], query={"cursor": cursor, "limit": limit})

    async def pool(self, pool: PoolKey, *, instances: bool = True) -> PoolDetail:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}", PoolDetail, query=None if instances else {"instances": False})

    async def instances(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[InstanceSummary]:
        return await self._call(
            "GET", f"/v1/pools/{path_of(pool)}/instances", Page[InstanceSummary], query={"cursor": cursor, "limit": limit}
        )

    async def instance(self, pool: PoolKey, instance: str) -> InstanceDetail:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/instances/{segment(instance)}", InstanceDetail)

    async def pod_log(self, pool: PoolKey, instance: str, filters: Query | None = None) -> PodLog:
        """Return the end of the log of an instance's pod; `filters` are lines, search, container and previous."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/instances/{segment(instance)}/log", PodLog, query=filters)

    async def engine_metrics(self, pool: PoolKey, instance: str, search: str | None = None) -> EngineMetrics:
        """Return the engine's present metrics page; with `search`, only the families that contain the text."""
        path = f"/v1/pools/{path_of(pool)}/instances/{segment(instance)}/metrics"
        return await self._call("GET", path, EngineMetrics, query={"search": search})

    async def pod_events(self, pool: PoolKey, instance: str) -> PodEvents:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/instances/{segment(instance)}/pod-events", PodEvents)

    async def send_test_request(self, pool: PoolKey, trial: Trial) -> TrialAnswer:
        """Send one request to a pool through a router, as a client would send it."""
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/test-request", TrialAnswer, body=trial)

    async def revisions(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolRevision]:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/revisions", Page[PoolRevision], query={"cursor": cursor, "limit": limit})

    async def events(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolEventItem]:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/events", Page[PoolEventItem], query={"cursor": cursor, "limit": limit})

    async def slo_versions(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[SloVersion]:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo", Page[SloVersion], query={"cursor": cursor, "limit": limit})

    async def slo_attainment(
        self,
        pool: PoolKey,
        *,
        start: str | None = None,
        end: str | None = None,
        version: int | None = None,
        priority_class: str | None = None,
    ) -> SloAttainment:
        """Return the attainment of the objectives from `start` to `end` (`now-6h`, RFC 3339); default: the past day."""
        query: Query = {"from": start, "to": end, "version": version, "priority_class": priority_class}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo/attainment", SloAttainment, query=query)

    async def slo_tasks(self, pool: PoolKey, *, start: str | None = None, end: str | None = None) -> SloTasks:
        """Return the attainment of the pool's targets for whole tasks; default: the past day."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo/tasks", SloTasks, query={"from": start, "to": end})

    async def slo_task_burn(self, pool: PoolKey) -> SloTaskBurn:
        """Return the burn rates of the error budgets of the pool's targets for whole tasks."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo/tasks/burn", SloTaskBurn)

    async def slo_burn(self, pool: PoolKey) -> SloBurn:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo/burn", SloBurn)

    async def slo_what_if(
        self,
        pool: PoolKey,
        *,
        ttft: str | None = None,
        tpot: str | None = None,
        percentile: float | None = None,
        start: str | None = None,
        end: str | None = None,
        priority_class: str | None = None,
    ) -> SloWhatIf:
        """Return the number of requests in the range (default: the past day) that would have met other targets, such as
        `5s`.
        """
        query: Query = {"ttft": ttft, "tpot": tpot, "percentile": percentile, "from": start, "to": end, "priority_class": priority_class}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/slo/what-if", SloWhatIf, query=query)

    async def ring(self, pool: PoolKey, *, add: int | None = None, remove: Sequence[str] = (), anchors: int | None = None) -> Ring:
        """Return the hash ring, with the effect of a change: added instances, removed instances, or another number of
        anchors.
        """
        query: Query = {"add": add, "remove": tuple(remove), "anchors": anchors}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/ring", Ring, query=query)

    async def predictor(self, pool: PoolKey) -> Predictor:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/predictor", Predictor)

    async def rollout(self, pool: PoolKey) -> Rollout:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/rollout", Rollout)

    async def canary(self, pool: PoolKey) -> Canary:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/canary", Canary)

    async def shadows(self, pool: PoolKey, *, start: str | None = None, end: str | None = None) -> ShadowReport:
        """Return the decisions that advising policies would have made in a range; default: the past day."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/shadows", ShadowReport, query={"from": start, "to": end})

    async def heatmap(
        self,
        pool: PoolKey,
        *,
        metric: str = "pending_prefill_tokens",
        start: str = "now-1h",
        end: str = "now",
        columns: int | None = None,
        aggregate: str = "max",
        sort: str = "name",
        group: str = "instance",
    ) -> Heatmap:
        """Return a heatmap. `start` and `end` are RFC 3339 or `now-15m`; `columns` is at most 360."""
        query = {"metric": metric, "from": start, "to": end, "columns": columns, "aggregate": aggregate, "sort": sort, "group": group}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/heatmap", Heatmap, query=query)

    async def load_explanation(
        self,
        pool: PoolKey,
        instance: str,
        *,
        metric: str = "pending_prefill_tokens",
        start: str = "now-5m",
        end: str = "now",
        limit: float | None = None,
    ) -> LoadExplanation:
        """Return the explanation of an instance's load from `start` to `end`, at most a day. `limit` is the metric's
        limit from a heatmap; without it, the present limit is used.
        """
        query = {"metric": metric, "from": start, "to": end, "limit": limit}
        path = f"/v1/pools/{path_of(pool)}/instances/{segment(instance)}/explanation"
        return await self._call("GET", path, LoadExplanation, query=query)

    async def differences(
        self, pool: PoolKey, instances: str, *, start: str = "now-5m", end: str = "now", rest_start: str = "now-1h", rest_end: str = "now"
    ) -> Differences:
        """Return the differences between the requests of some instances from `start` to `end` and the other requests
        from `rest_start` to `rest_end`. `instances` are separated by commas; each time range is at most a day.
        """
        query = {"instances": instances, "from": start, "to": end, "rest_from": rest_start, "rest_to": rest_end}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/differences", Differences, query=query)
