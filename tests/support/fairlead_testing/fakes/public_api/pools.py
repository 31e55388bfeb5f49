"""Pools: lists of pools and of their parts, details, and heatmaps."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.durations import parse_duration
from fairlead.engine_metrics import read_metrics
from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, Role
from fairlead.pools import parse_spec
from fairlead.reports.engines import Quantity
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import InstanceEntry, PoolKey
from fairlead_api.loads.differing import Seen, SeenRequests, differences, region_of
from fairlead_api.plans.rollouts import rollout_of
from fairlead_api.pods.reading import matching
from fairlead_api.pools.rings import RingQuestion, ring_of
from fairlead_api.schedules.outlooks import schedule_detail, schedule_item
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.engine_fits import PoolEngine
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_client.resources.heatmaps import METRICS
from fairlead_client.resources.instances import InstanceCount, InstanceDetail
from fairlead_client.resources.pods import PodEvent, PodEvents, PodLog
from fairlead_client.resources.pools import PoolDetail
from fairlead_client.resources.predictors import Predictor
from fairlead_client.resources.schedules import BoundsAt, InForceAt, ScheduleDetail, ScheduleItem
from fairlead_client.resources.trials import Trial, TrialAnswer
from fairlead_testing.builders.forecasts import office_forecast
from fairlead_testing.builders.routing import table
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, Source, as_json, document_routes, list_routes
from fairlead_testing.fakes.public_data import engine_pages, objectives
from fairlead_testing.fakes.public_data.canaries import made_up_canary
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.fakes.public_data.predictors import learnt_models
from fairlead_testing.fakes.public_data.shadows import made_up_shadows
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.text.time_ranges import parse_range

POOL = "/v1/pools/{namespace}/{name}"


def pool_named(request: Request) -> str:
    """Return the pool that the path names, as namespace/name. Raises Refusal if it does not exist."""
    name = f"{request.path_params['namespace']}/{request.path_params['name']}"
    if name not in INSTANCES:
        raise Refusal(404, "No such pool", f"There is no pool {name}.", remedy="The list of pools has those that exist.")
    return name


class Pools:
    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._clock = clock

    def routes(self, guard: Callable[[Endpoint], Endpoint], operators: Callable[[Endpoint], Endpoint]) -> list[Route]:
        lists: dict[str, Source] = {
            "/v1/pools": lambda _: [self._world.pool(name) for name in self._world.pools_known],
            f"{POOL}/instances": lambda request: self._world.instances(pool_named(request)),
            f"{POOL}/revisions": lambda request: self._world.revisions(pool_named(request)),
            f"{POOL}/events": lambda request: self._world.events(pool_named(request)),
            "/v1/schedules": self._schedules,
            "/v1/schedule-runs": lambda _: self._world.schedule_runs,
            f"{POOL}/slo": lambda request: self._world.slo(pool_named(request)),
        }
        return [
            *(route for path, source in lists.items() for route in list_routes(path, source, guard)),
            Route(f"{POOL}/heatmap", guard(self._heatmap)),
            Route(f"{POOL}/instances/{{instance}}/explanation", guard(self._explanation)),
            Route(f"{POOL}/differences", guard(self._differences)),
            Route(f"{POOL}/test-request", operators(self._test_request), methods=["POST"]),
            Route(f"{POOL}/instances/{{instance}}/log", operators(self._pod_log)),
            Route(f"{POOL}/instances/{{instance}}/metrics", guard(self._engine_metrics)),
            Route(f"{POOL}/instances/{{instance}}/pod-events", guard(self._pod_events)),
            Route(f"{POOL}/instances/{{instance}}", guard(self._instance)),
            *document_routes(f"{POOL}/ring", self._ring, "instances", guard),
            *document_routes(f"{POOL}/slo/attainment", self._slo_attainment, "shares", guard),
            *document_routes(f"{POOL}/slo/tasks", self._slo_tasks, "shares", guard),
            *document_routes(f"{POOL}/slo/burn", self._slo_burn, "windows", guard),
            *document_routes(f"{POOL}/slo/tasks/burn", self._slo_task_burn, "windows", guard),
            *document_routes(f"{POOL}/slo/what-if", self._slo_what_if, "classes", guard),
            *document_routes(f"{POOL}/canary", self._canary, "steps", guard),
            *document_routes(f"{POOL}/shadows", self._shadows, "hours", guard),
            Route(f"{POOL}/bounds", guard(self._bounds)),
            Route(f"{POOL}/forecast", guard(self._forecast)),
            Route("/v1/schedules/{namespace}/{pool}/{name}", guard(self._schedule)),
            Route(f"{POOL}/predictor", guard(self._predictor)),
            Route(f"{POOL}/rollout", guard(self._rollout)),
            Route(f"{POOL}/engine", guard(self._engine)),
            Route(POOL, guard(self._pool_detail)),
        ]

    def _schedules(self, request: Request) -> list[ScheduleItem]:
        pool = request.query_params.get("pool")
        return [one for one in self._world.schedules if pool is None or one.pool == pool]

    async def _pod_log(self, request: Request) -> Response:
        name, query = request.path_params["instance"], request.query_params
        if name in self._world.pods_gone:
            raise Refusal(404, "No such pod", f"There is no pod {name}.")
        previous = query.get("previous") == "true"
        written = [f"{name} line {number} <b>" for number in range(400)] if not previous else ["CUDA error: out of memory"]
        lines = matching(written, query.get("search", ""))[-int(query.get("lines", "200")) :]
        return as_json(
            PodLog(instance=name, container="engine", containers=["engine"], previous=previous, restarts=1, read=len(written), lines=lines)
        )

    async def _engine_metrics(self, request: Request) -> Response:
        name, page = request.path_params["instance"], engine_pages.PAGE.encode()
        if name in self._world.pods_gone:
            raise Refusal(503, "Not available", "the engine does not answer the control API", "unavailable")
        found = read_metrics(page, request.query_params.get("search", ""))
        return as_json(
            EngineMetrics(
                instance=name,
                at=self._clock(),
                size=len(page),
                families=found.families,
                families_in_all=found.families_in_all,
                unreadable=found.unreadable,
            )
        )

    async def _test_request(self, request: Request) -> Response:
        trial, pool = msgspec.json.decode(await request.body(), type=Trial), pool_named(request)
        if not trial.prompt:
            raise Refusal(422, "Invalid input", "prompt: write 1 to 100,000 characters", "invalid-input", field="prompt")
        instance = INSTANCES[pool][0]
        headers = [("x-fairlead-pool", pool), ("x-fairlead-instance", instance), ("x-fairlead-decision", "d-0002")]
        return as_json(
            TrialAnswer(
                pool=pool,
                status=200,
                seconds=0.21,
                headers=headers,
                text=f"Echo: {trial.prompt}",
                body="{}",
                decision="d-0002",
                instance=instance,
                trace="0af7651916cd43dd8448eb211c80319c",
            )
        )

    async def _pod_events(self, request: Request) -> Response:
        at = self._clock() - timedelta(minutes=2)
        event = PodEvent(at=at, kind="Warning", reason="BackOff", message="Back-off restarting failed container", count=3, source="kubelet")
        return as_json(PodEvents(instance=request.path_params["instance"], events=[event]))

    async def _bounds(self, request: Request) -> Response:
        """Answer the bounds of prefill and decode. A schedule decides the SLO, and no schedule decides the ratio."""
        roles = [replace(example(BoundsAt), role=role, schedule=None) for role in (Role.PREFILL, Role.DECODE)]
        return as_json(replace(example(InForceAt), pool=pool_named(request), roles=roles, deciding={"slo": ["night"]}))

    async def _forecast(self, request: Request) -> Response:
        """Answer the forecast of a pool with five weeks of office hours."""
        return as_json(office_forecast(pool_named(request), self._clock()))

    async def _schedule(self, request: Request) -> Response:
        """Answer the schedule of this name from the pool's spec, or an example if the spec has no such schedule."""
        pool, name = (request.path_params[one] for one in ("pool", "name"))
        pool, now = f"{request.path_params['namespace']}/{pool}", self._clock()
        declared = parse_spec(self._world.spec(pool)).scaling.schedules
        for one in declared:
            if one.name == name:
                return as_json(schedule_detail(schedule_item(pool, one, self._world.owner[pool], now), declared, now))
        detail = example(ScheduleDetail)
        listed = next((one for one in self._world.schedules if (one.pool, one.name) == (pool, name)), detail.schedule)
        return as_json(replace(detail, schedule=listed))

    async def _engine(self, request: Request) -> Response:
        """Answer the facts of a real engine that has a fit."""
        return as_json(replace(example(PoolEngine), pool=pool_named(request), is_simulated=False))

    async def _pool_detail(self, request: Request) -> Response:
        pool = pool_named(request)
        return as_json(
            PoolDetail(
                pool=self._world.pool(pool),
                spec=self._world.spec(pool),
                generation=4,
                conditions=self._world.conditions(pool),
                instances=[] if request.query_params.get("instances") == "false" else self._world.instances(pool),
                live_routers=2,
                table_acknowledged=True,
                desired=self._world.desired_of(pool),
                learnt=self._world.learnt(pool),
                capability=self._world.capability(pool),
                counts=[
                    InstanceCount(role=role, state=state, count=count)
                    for (role, state), count in sorted(Counter((one.role, one.state) for one in self._world.instances(pool)).items())
                ],
                observed_at=max(self._clock() - timedelta(seconds=5), self._world.reported.get(pool, datetime.min.replace(tzinfo=UTC))),
            )
        )

    async def _instance(self, request: Request) -> Response:
        pool, name = pool_named(request), request.path_params["instance"]
        if name not in INSTANCES[pool]:
            raise Refusal(404, "No such instance", f"There is no instance {name} in {pool}.")
        one = self._world.instance(pool, name)
        learnt = [row for row in self._world.learnt(pool) if row.quantity != Quantity.TEXT]
        return as_json(
            InstanceDetail(
                instance=one,
                transitions=self._world.transitions(one),
                conditions=self._world.conditions_of_engine(name),
                caches=self._world.caches(),
                learnt=learnt,
                held=self._world.held(pool, name),
                capability=self._world.capability(pool),
            )
        )

    async def _rollout(self, request: Request) -> Response:
        pool = pool_named(request)
        world = self._world
        return as_json(rollout_of(PoolKey.parse(pool), world.spec(pool), world.status(pool), world.template_revisions(pool)))

    async def _ring(self, request: Request) -> Response:
        query, pool = request.query_params, pool_named(request)
        anchors = int(query["anchors"]) if "anchors" in query else None
        question = RingQuestion(add=int(query.get("add", 0)), remove=tuple(query.getlist("remove")), anchors=anchors)
        instances = self._world.instances(pool)
        entries = [
            InstanceEntry(
                id=one.id,
                address=one.address or "",
                role=one.role,
                state=one.state,
                weight=one.weight,
                anchors=160 if one.state in ACCEPTING else 0,
            )
            for one in instances
        ]
        made = replace(table(entries, policy=self._world.pool(pool).policy), pool=PoolKey.parse(pool))
        try:
            return as_json(ring_of(made, 160, {one.id: one.bound_sessions for one in instances}, BUILT_IN, question))
        except InvalidInput as error:
            raise Refusal(422, "Not acceptable", str(error), "invalid-input", error.remedy, error.field, str(error.value)) from error

    async def _shadows(self, request: Request) -> Response:
        return as_json(made_up_shadows(pool_named(request), self._clock()))

    async def _canary(self, request: Request) -> Response:
        return as_json(made_up_canary(pool_named(request), self._clock()))

    async def _slo_attainment(self, request: Request) -> Response:
        return as_json(objectives.attainment(self._clock(), pool_named(request)))

    async def _slo_tasks(self, request: Request) -> Response:
        return as_json(objectives.tasks(self._clock(), pool_named(request)))

    async def _slo_task_burn(self, request: Request) -> Response:
        return as_json(objectives.task_burns(self._clock(), pool_named(request)))

    async def _slo_burn(self, request: Request) -> Response:
        return as_json(objectives.burn(self._clock(), pool_named(request)))

    async def _slo_what_if(self, request: Request) -> Response:
        query, pool = request.query_params, pool_named(request)
        try:
            ttft, tpot = (parse_duration(query.get(name, usual), name) for name, usual in (("ttft", "5s"), ("tpot", "100ms")))
        except InvalidInput as error:
            raise Refusal(422, "Not acceptable", str(error), "invalid-input", error.remedy, error.field, str(error.value)) from error
        return as_json(objectives.other(self._clock(), pool, ttft, tpot, float(query.get("percentile", objectives.GOAL))))

    async def _predictor(self, request: Request) -> Response:
        """Answer the models of the first pool, whose policy learns; the policies of other pools have no models."""
        pool = pool_named(request)
        policy = self._world.pool(pool).policy
        learns = pool == str(self._world.pools_known[0])
        models = learnt_models(self._clock(), 12) if learns else []
        return as_json(Predictor(pool=pool, policy="lodestar" if learns else policy, learns=learns, models=models))

    async def _heatmap(self, request: Request) -> Response:
        query = request.query_params
        if query.get("metric", "running") not in METRICS:
            raise Refusal(422, "Unknown metric", f"metric: {query['metric']!r}", field="metric")
        chosen = parse_range(query.get("from"), query.get("to"), self._clock())
        columns = min(360, int(query.get("columns", 120)))
        pool, metric = pool_named(request), query.get("metric", "running")
        wanted = {name: query.get(name, usual) for name, usual in (("aggregate", "max"), ("sort", "name"), ("group", "instance"))}
        return as_json(self._world.heatmap(pool, metric, chosen.start, chosen.end, columns, **wanted))

    async def _differences(self, request: Request) -> Response:
        """Answer the differences between made-up decisions, computed by the API's own rules."""
        query, pool = request.query_params, pool_named(request)
        rest = query.get("rest_from", "now-1h"), query.get("rest_to", "now")
        try:
            region, start, end = region_of(query["instances"], query.get("from", "now-5m"), query.get("to", "now"), rest, self._clock())
        except InvalidInput as error:
            raise Refusal(422, "Invalid input", str(error), field=error.field) from error
        decided = [one for one in self._world.decisions() if one.pool == pool and start <= one.at < end]
        nodes = {one.id: one.node for one in self._world.instances(pool)}
        return as_json(differences(region, SeenRequests(seen=[_seen(one) for one in decided], nodes=nodes, revisions=[])))

    async def _explanation(self, request: Request) -> Response:
        """Answer the explanation of a made-up load, computed by the API's own code from the values of `loads`."""
        query, pool, name = request.query_params, pool_named(request), request.path_params["instance"]
        if name not in INSTANCES[pool]:
            raise Refusal(404, "No such instance", f"There is no instance {name}.")
        chosen = parse_range(query.get("from"), query.get("to"), self._clock())
        limit = float(query["limit"]) if "limit" in query else None
        return as_json(self._world.load_explanation(pool, name, query.get("metric", "running"), chosen.start, chosen.end, limit))


def _seen(decision: RoutingDecision) -> Seen:
    return Seen(
        at=decision.at,
        instance=decision.chosen,
        session=decision.session,
        priority_class=decision.priority_class,
        reason=decision.reason,
        prompt_tokens=decision.prompt_tokens,
        miss_tokens=None,
        weight=1.0 / decision.sample_rate,
    )
