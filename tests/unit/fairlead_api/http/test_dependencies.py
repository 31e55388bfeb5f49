"""The dependencies that FastAPI calls before an endpoint."""

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from fairlead_api.app import create_api
from fairlead_api.settings import read_settings

SETTINGS = {"FAIRLEAD_DATABASE_URL": "postgresql://127.0.0.1:1/fairlead"}


def called(dependant: Dependant) -> Iterator[Any]:
    for one in dependant.dependencies:
        yield from called(one)
    yield dependant.call


async def test_nothing_of_a_request_runs_in_a_thread() -> None:
    """FastAPI runs each function that is not async in a thread. Two of these cost a list more time than its rows, and a
    busy loop continues late after each.
    """
    routes = [route for route in create_api(read_settings(SETTINGS)).routes if isinstance(route, APIRoute)]
    assert len(routes) > 100
    threads = {call.__qualname__ for route in routes for call in called(route.dependant) if not iscoroutinefunction(call)}
    assert threads == set()
