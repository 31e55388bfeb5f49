"""Series of numbers and annotations, for all pools, for a pool and for an instance."""

from collections.abc import Callable
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead.range_steps import covered
from fairlead_api.series.reading import chosen
from fairlead_client.resources.series import Annotations, Scope, Series
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, as_json
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
from fairlead_testing.fakes.public_data.figures import figures_of_all, figures_of_instance
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.fakes.public_data.series import annotations_of, lines_of
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.text.time_ranges import parse_range


class SeriesOverTime:
    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._clock = clock

    def routes(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        below = ("/v1", POOL, f"{POOL}/instances/{{instance}}")
        return [
            *(Route(f"{path}/figures", guard(self._figures)) for path in below),
            Route(f"{POOL}/instance-figures", guard(self._by_instance)),
            *(
                route
                for path in below
                for route in (Route(f"{path}/series", guard(self._series)), Route(f"{path}/annotations", guard(self._annotations)))
            ),
        ]

    async def _figures(self, request: Request) -> Response:
        pool, instance = _subject(request)
        asked = parse_range(request.query_params.get("from"), request.query_params.get("to"), self._clock())
        if pool and instance:
            return as_json(figures_of_instance(self._world.figures(pool, asked.start, asked.end), len(INSTANCES[pool])))
        each = [self._world.figures(one, asked.start, asked.end) for one in ([pool] if pool else self._world.pools_known)]
        return as_json(each[0] if pool or not each else figures_of_all(each, each[0]))

    async def _by_instance(self, request: Request) -> Response:
        asked = parse_range(request.query_params.get("from"), request.query_params.get("to"), self._clock())
        return as_json(self._world.figures_by_instance(pool_named(request), asked.start, asked.end))

    async def _series(self, request: Request) -> Response:
        query, now = request.query_params, self._clock()
        pool, instance = _subject(request)
        scope = Scope.FLEET if pool is None else Scope.POOL if instance is None else Scope.INSTANCE
        try:
            names = chosen(query.get("metrics", "requests,ttft_attainment"), scope)
            asked = parse_range(query.get("from"), query.get("to"), now)
        except InvalidInput as error:
            raise Refusal(422, "Invalid input", str(error), "invalid-input", error.remedy, error.field) from error
        buckets = int(query.get("buckets", 120))
        lines = [one for name in names for one in lines_of(name, pool, instance, asked.start, asked.end, buckets, now)]
        whole = covered(asked.start, asked.end, now)
        return as_json(Series(pool=pool, instance=instance, start=whole.start, end=min(whole.end, now), lines=lines))

    async def _annotations(self, request: Request) -> Response:
        pool, _ = _subject(request)
        now = self._clock()
        asked = parse_range(request.query_params.get("from"), request.query_params.get("to"), now)
        of = self._world.pools_known if pool is None else [pool]
        items = sorted((one for each in of for one in annotations_of(each, asked.start, asked.end, now)), key=lambda one: one.at)
        return as_json(Annotations(start=asked.start, end=asked.end, items=items, complete=True))


def _subject(request: Request) -> tuple[str | None, str | None]:
    if "namespace" not in request.path_params:
        return None, None
    pool, instance = pool_named(request), request.path_params.get("instance")
    if instance is not None and instance not in INSTANCES[pool]:
        raise Refusal(404, "No such instance", f"There is no instance {instance} in {pool}.")
    return pool, instance
