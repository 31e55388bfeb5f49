"""Search in the made-up world."""

from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_client.resources.search import SearchGroup, SearchHit, SearchKind, SearchReport
from fairlead_testing.fakes.public_api.answers import Endpoint, as_json
from fairlead_testing.fakes.public_api.plan_book import PlanBook
from fairlead_testing.fakes.public_data.world import World


class Search:
    def __init__(self, world: World, book: PlanBook) -> None:
        self._world = world
        self._book = book

    def routes(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        return [Route("/v1/search", guard(self._search))]

    async def _search(self, request: Request) -> Response:
        part, most = request.query_params.get("q", ""), int(request.query_params.get("limit", "8"))
        found = [hit for hit in self._all() if part.lower() in hit.name.lower()]
        groups = []
        for kind in SearchKind if part else ():
            hits = [hit for hit in found if hit.kind is kind]
            groups.append(SearchGroup(kind=kind, hits=hits[:most], more=len(hits) > most))
        return as_json(SearchReport(q=part, groups=groups))

    def _all(self) -> Iterable[SearchHit]:
        world = self._world
        for pool in world.pools_known:
            yield SearchHit(kind=SearchKind.POOL, id=pool, name=pool, words="a pool", pool=pool)
            for one in world.instances(pool):
                yield SearchHit(kind=SearchKind.INSTANCE, id=one.id, name=one.id, words=f"{one.role}, {one.state}", pool=pool)
        for session in world.sessions():
            name, words = session.session, f"on {session.instance}"
            yield SearchHit(kind=SearchKind.SESSION, id=name, name=name, words=words, pool=session.pool, at=session.last_seen_at)
        for made in world.decisions():
            words = f"went to {made.chosen}"
            yield SearchHit(kind=SearchKind.REQUEST, id=made.id, name=made.request, words=words, pool=made.pool, at=made.at)
        for plan in self._book.plans.values():
            yield SearchHit(kind=SearchKind.PLAN, id=plan.id, name=plan.id, words=plan.kind, pool=plan.pool, at=plan.created_at)
        for entry in world.audit():
            yield SearchHit(
                kind=SearchKind.AUDIT, id=str(entry.id), name=entry.object, words=f"{entry.action} by {entry.actor}", at=entry.at
            )
