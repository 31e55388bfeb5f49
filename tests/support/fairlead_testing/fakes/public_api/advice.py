"""Advice and trends of the made-up pools."""

from collections.abc import Callable, Iterable
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_api.advice.asking import Situations, report
from fairlead_client.resources.advice import AdviceReport
from fairlead_testing.fakes.public_api.answers import Endpoint, as_json, document_routes
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
from fairlead_testing.fakes.public_data.advice import WINDOW, situation, trends
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.text.time_ranges import parse_range


class AdviceOfPools:
    def __init__(self, world: World, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._clock = clock

    def routes(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        return [
            *document_routes("/v1/advice", self._all, "items", guard),
            *document_routes(f"{POOL}/advice", self._one, "items", guard),
            Route("/v1/trends", guard(self._trends)),
        ]

    def _found(self, pools: Iterable[str]) -> AdviceReport:
        seen = [situation(self._world.pool(name), self._world.instances(name), self._world.conditions(name)) for name in pools]
        return report(Situations(window_seconds=WINDOW, pools=seen), self._clock())

    async def _all(self, request: Request) -> Response:
        return as_json(self._found(self._world.pools_known))

    async def _one(self, request: Request) -> Response:
        return as_json(self._found([pool_named(request)]))

    async def _trends(self, request: Request) -> Response:
        chosen = parse_range(request.query_params.get("from"), request.query_params.get("to"), self._clock())
        pools = [(self._world.pool(name), self._world.figures(name, chosen.start, chosen.end)) for name in self._world.pools_known]
        return as_json(trends(chosen.start, chosen.end, pools, sum(pool.desired for pool, _ in pools)))
