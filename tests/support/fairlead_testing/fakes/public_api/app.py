"""The public API as an ASGI app over a made-up `World`: paging, filters, CSV, stateful plans, sessions with roles, a
live stream.

The web UI can be tested with it without Postgres. `tests/contract/public_api` runs the same cases against it and the
real API. At a path of the real API for which there is no made-up data, it answers an example of the path's type.
Tokens: `viewer-token`, `operator-token`, `admin-token`; one-time login tokens are in `login_links`.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead_api.http.strictness import check_parameters
from fairlead_client.resources.access import AccessRole
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.advice import AdviceOfPools
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, example_of
from fairlead_testing.fakes.public_api.audit_views import SavedViews
from fairlead_testing.fakes.public_api.comments import WrittenComments
from fairlead_testing.fakes.public_api.history import History
from fairlead_testing.fakes.public_api.live import LiveStreams
from fairlead_testing.fakes.public_api.paths import public_parameters, refused_value, template, unmade_paths
from fairlead_testing.fakes.public_api.plan_book import PlanBook
from fairlead_testing.fakes.public_api.plans import Plans
from fairlead_testing.fakes.public_api.pools import Pools
from fairlead_testing.fakes.public_api.search import Search
from fairlead_testing.fakes.public_api.series import SeriesOverTime
from fairlead_testing.fakes.public_api.simulations import SimulationsOfPools
from fairlead_testing.fakes.public_api.webhooks import Webhooks
from fairlead_testing.fakes.public_data.world import World

ROOT = Path(__file__).parents[5]


class FakePublicApi:
    """State and endpoints.

    Paths that contain a fragment in `broken` answer 503. `requests` logs (method, path). `stale_seconds` is the age
    that answers give themselves, as if they came from a cache.
    """

    def __init__(self, world: World, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.world = world
        self.book = PlanBook(world, clock)
        self.broken: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.stale_seconds: int | None = None
        self.live = LiveStreams()
        access = Access(world, clock)
        self.sessions, self.tokens, self.login_links = access.sessions, access.tokens, access.login_links
        self.gateway_keys = access.gateway_keys
        self.simulations = SimulationsOfPools(self.book, access, clock)
        self.webhooks = Webhooks(access, clock)
        self.audit_views = SavedViews(access, clock)
        self.comments = WrittenComments(access, clock)
        routes = [
            *access.routes(),
            *Plans(world, self.book, access, clock).routes(),
            *self.live.routes(access.guard),
            *History(world, clock).routes(access.guard, lambda endpoint: access.guard(endpoint, AccessRole.OPERATOR)),
            *SeriesOverTime(world, clock).routes(access.guard),
            *Search(world, self.book).routes(access.guard),
            *AdviceOfPools(world, clock).routes(access.guard),
            *self.simulations.routes(access.guard),
            *Pools(world, clock).routes(access.guard, lambda endpoint: access.guard(endpoint, AccessRole.OPERATOR)),
            *self.webhooks.routes(),
            *self.audit_views.routes(),
            *self.comments.routes(),
        ]
        examples = [Route(path, access.guard(example_of(kind))) for path, kind in unmade_paths(routes).items()]
        self.app = Starlette(
            routes=[
                *(Route(one.path, self._open(one.path, one.endpoint), methods=one.methods) for one in [*examples, *routes]),
                Route("/openapi.json", _document),
            ]
        )

    def push(self, topic: str, items: Sequence[object]) -> None:
        """Send one live event to every open stream."""
        self.live.push(topic, len(self.requests), items)

    def end_streams(self) -> None:
        """Closes every open stream, as a restarting server does."""
        self.live.end()

    def _open(self, path: str, endpoint: Endpoint) -> Endpoint:
        async def handle(request: Request) -> Response:
            self.requests.append((request.method, request.url.path))
            try:
                if any(part in request.url.path for part in self.broken):
                    raise Refusal(503, "The database is away", "Postgres does not answer; nothing was lost.", "unavailable")
                _check_parameters(path, request)
                answer = await endpoint(request)
                if self.stale_seconds is not None:
                    answer.headers["x-fairlead-stale"], answer.headers["age"] = "database-unavailable", str(self.stale_seconds)
                return answer
            except InvalidInput as error:
                return Refusal(422, "Invalid input", error.told, "invalid-input", remedy=error.remedy, field=error.field).answer()
            except Refusal as refusal:
                return refusal.answer()

        return handle


async def _document(_: Request) -> Response:
    return Response((ROOT / "docs" / "openapi.json").read_bytes(), media_type="application/json")


def _check_parameters(path: str, request: Request) -> None:
    """Refuse query parameters that the real API refuses, so that no page sends parameters which the real API does not
    take.
    """
    method = "GET" if request.method == "HEAD" else request.method
    try:
        check_parameters(public_parameters()[template(path), method], request)
    except InvalidInput as error:
        raise Refusal(422, "Invalid input", error.told, "invalid-input", error.remedy, error.field, str(error.value)) from None
    refused = refused_value(template(path), request, method)
    if refused is not None:
        field, why = refused
        raise Refusal(422, "Invalid input", f"{field}: {why}", "invalid-input", why, field=field, value=request.query_params.get(field))
