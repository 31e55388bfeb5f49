"""Routes that FastAPI analyses only when they are first called. The analysis takes a millisecond per route; the API has
189 routes, and most processes and tests call few of them.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from fastapi import APIRouter
from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.routing import compile_path

from fairlead_api.http.strictness import close


class Routes(APIRouter):
    """The routes of a subject. They refuse unknown parameters."""

    def __init__(self, prefix: str = "", tags: list[str | Enum] | None = None, dependencies: Sequence[Depends] | None = None) -> None:
        super().__init__(prefix=prefix, tags=tags, dependencies=dependencies, route_class=LateRoute)


class LateRoute(APIRoute):
    """A route that FastAPI analyses when it is first called. Until then the route has only the data that is needed to
    match requests. Therefore a mistake in an endpoint's parameters shows only when the route is called, or when the
    OpenAPI document is created.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._options = options
        self.path, self.endpoint, self.methods = path, endpoint, set(options["methods"])
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)

    def __getattr__(self, name: str) -> Any:
        """Run FastAPI's analysis, which sets the missing attribute, and return the attribute."""
        options = self.__dict__.pop("_options", None)
        if options is None:
            raise AttributeError(name, name=name, obj=self)
        super().__init__(self.path, self.endpoint, **options)
        close(self)
        return getattr(self, name)
