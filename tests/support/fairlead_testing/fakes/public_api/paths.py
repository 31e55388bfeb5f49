"""The GET paths of the real API: the fake must have all of them, and no other."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import Route

from fairlead_api.app import create_api
from fairlead_api.http.strictness import parameters_of
from fairlead_api.settings import Settings


@cache
def public_paths() -> dict[str, Any]:
    """Return every GET path below /v1 of the real API with the type of its answer (None if it is not JSON).

    It needs no database.
    """
    return {one.path: one.response_model for one in _public_routes() if "GET" in (one.methods or ())}


@cache
def public_parameters() -> dict[tuple[str, str], dict[str, bool]]:
    """Return the query parameters of the real API by path template and method. A parameter is true if it may be
    repeated.
    """
    return {(template(one.path), method): parameters_of(one) for one in _public_routes() for method in one.methods or ()}


def refused_value(path: str, request: Request, method: str) -> tuple[str, str] | None:
    """Return the first query parameter whose value the real API refuses, with the reason; None if it refuses none.

    `path` is a path template as `template` makes it.
    """
    for dependant in _dependants()[path, method]:
        _, errors = request_params_to_args(dependant.query_params, request.query_params)
        for error in errors:
            return str(error["loc"][-1]), str(error["msg"])
    return None


@cache
def _dependants() -> dict[tuple[str, str], list[Dependant]]:
    return {(template(one.path), method): list(_all_of(one.dependant)) for one in _public_routes() for method in one.methods or ()}


def _all_of(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for below in dependant.dependencies:
        yield from _all_of(below)


@cache
def _public_routes() -> list[APIRoute]:
    api = create_api(Settings(database_url="postgresql+psycopg://nobody@localhost/none"))
    return [route for route in api.routes if isinstance(route, APIRoute) and route.path.startswith("/v1/")]


def unmade_paths(routes: list[Route]) -> dict[str, Any]:
    """Return the GET paths of the real API that `routes` do not have, with the types of their answers.

    Raises AssertionError if `routes` have a GET path that the real API does not have.
    """
    made = {template(route.path) for route in routes}
    real = {template(path) for path in public_paths()}
    invented = {template(route.path) for route in routes if "GET" in (route.methods or ())} - real
    assert not invented, f"the API has no {invented}"
    return {path: kind for path, kind in public_paths().items() if template(path) not in made}


def template(path: str) -> str:
    """Return the path with `{}` for each of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)
