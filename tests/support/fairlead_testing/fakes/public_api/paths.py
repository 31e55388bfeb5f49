"""The paths of the real API, which the fake must have and may not add to."""

import re
from functools import cache
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Route

from fairlead_api.app import create_api
from fairlead_api.settings import Settings


@cache
def public_paths() -> dict[str, Any]:
    """Every path below /v1 that the real API reads from, with the type of its answer (None where it is no JSON).

    It needs no database for that.
    """
    api = create_api(Settings(database_url="postgresql+psycopg://nobody@localhost/none"))
    known = [route for route in api.routes if isinstance(route, APIRoute) and route.path.startswith("/v1/")]
    return {one.path: one.response_model for one in known if "GET" in (one.methods or ())}


def unmade_paths(routes: list[Route]) -> dict[str, Any]:
    """The real API's paths that `routes` lack, with the types of their answers.

    An AssertionError names the paths that `routes` read from and the real API has not.
    """
    made = {_template(route.path) for route in routes}
    real = {_template(path) for path in public_paths()}
    invented = {_template(route.path) for route in routes if "GET" in (route.methods or ())} - real
    assert not invented, f"the API has no {invented}"
    return {path: kind for path, kind in public_paths().items() if _template(path) not in made}


def _template(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)
