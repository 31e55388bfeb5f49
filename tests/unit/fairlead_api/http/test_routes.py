"""When FastAPI analyses a route, and what the route shows of it."""

import httpx
import pytest
from fastapi import FastAPI, Response

from fairlead_api.http import problems
from fairlead_api.http.routes import LateRoute, Routes
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the routes that FastAPI has analysed."""
    paths: list[str] = []
    monkeypatch.setattr("fairlead_api.http.routes.close", lambda route: paths.append(route.path))
    return paths


def two_routes() -> FastAPI:
    routes = Routes(prefix="/v1", tags=["numbers"])

    @routes.get("/one")
    async def one() -> Response:
        """The first route."""
        return Response("1")

    @routes.post("/two")
    async def two() -> Response:
        return Response("2")

    app = FastAPI(routes=routes.routes)
    problems.install(app)
    return app


async def test_a_route_is_analysed_once_when_it_is_first_called(analysed: list[str]) -> None:
    app = two_routes()
    assert analysed == []
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(app)) as http:
        assert [(await http.get("/v1/one")).text for _ in range(2)] == ["1", "1"]
    assert analysed == ["/v1/one"]


def test_the_document_has_routes_that_nobody_called(analysed: list[str]) -> None:
    found = two_routes().openapi()["paths"]
    assert (found["/v1/one"]["get"]["description"], found["/v1/two"]["post"]["tags"]) == ("The first route.", ["numbers"])
    assert analysed == ["/v1/one", "/v1/two"]


def test_an_attribute_that_no_route_has_is_missing() -> None:
    route = next(one for one in two_routes().routes if isinstance(one, LateRoute))
    assert not hasattr(route, "colour")
    assert not hasattr(route, "colour")
