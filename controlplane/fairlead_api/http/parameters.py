"""Query parameters that people send: an unknown one is an error and is never ignored, nor is one of two values."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from fairlead.errors import InvalidInput

OPEN = ("/internal/", "/v1/kubernetes/")
"""A newer router may tell what an older API skips; the Kubernetes API adds a `timeout` to what it sends."""


def closed(route: BaseRoute) -> BaseRoute:
    """The route, refusing what it does not take once the caller may ask it (422 naming the parameter, the near one and
    those that exist). Paths that programs of other versions ask stay open.
    """
    if not isinstance(route, APIRoute) or route.path.startswith(OPEN):
        return route
    known = parameters_of(route)

    async def check(request: Request) -> None:
        check_parameters(known, request)

    # the last of its dependencies, so that who may not ask hears that first
    route.dependant.dependencies.append(get_dependant(path=route.path_format, call=check))
    return route


def check_parameters(known: Mapping[str, bool], request: Request) -> None:
    """`known` says of each parameter whether it may come several times. Raises InvalidInput."""
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name not in known:
            raise InvalidInput(name[:200], values[0], _remedy(name[:200], list(known)))
        if len(values) > 1 and not known[name]:
            raise InvalidInput(name, ", ".join(values), "write it once")


def _remedy(name: str, known: list[str]) -> str:
    if not known:
        return "remove it; nothing can be asked here"
    near = get_close_matches(name.lower(), known, n=1)
    return f"{f'write {near[0]}' if near else 'remove it'}; known parameters: {', '.join(known)}"


def parameters_of(route: APIRoute) -> dict[str, bool]:
    """Names of a route's query parameters, those of its dependencies too, and whether each may come several times."""
    return dict(_parameters(route.dependant))


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    for one in dependant.query_params:
        kind = one.field_info.annotation
        yield one.alias, any(get_origin(part) is list for part in (kind, *get_args(kind)))
    for below in dependant.dependencies:
        yield from _parameters(below)
