"""Wires the web UI: settings, client, routes, and the checks that every request passes.

Only this module connects pages to addresses.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pkgutil import iter_modules

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from fairlead_client.client import ControlApi
from fairlead_client.problems import ClientError
from fairlead_client.resources.problems import Problem
from fairlead_process.clock import utc_now
from fairlead_web import pages
from fairlead_web.asgi_streaming import streaming
from fairlead_web.assets import load_assets
from fairlead_web.fragments import Fragments
from fairlead_web.pages import access, errors
from fairlead_web.rendering import Renderer
from fairlead_web.routes import Handler, Routes
from fairlead_web.security import SAFE_METHODS, Shield, csrf_matches
from fairlead_web.settings import web_settings
from fairlead_web.staleness import api_client, watch
from fairlead_web.visits import Site, Visit, regions_of, visit_of

PAGE_MODULES = tuple(import_module(f"{pages.__name__}.{one.name}") for one in iter_modules(pages.__path__))
"""Every module of pages. Each has its paths in `ROUTES`; `errors` has none."""


def create_web_app(
    api_transport: httpx.AsyncBaseTransport | None,
    api_urls: str | Sequence[str],
    public_url: str,
    secure_cookies: bool | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ASGIApp:
    """The web UI as an ASGI app. `api_transport` reaches the API in this process; None: over the network at `api_urls`.

    `public_url` is what people open; `secure_cookies` None follows its scheme. Raises InvalidInput for an
    address that cannot be used.
    """
    settings, assets = web_settings(public_url, secure_cookies), load_assets()
    site = Site(
        settings=settings,
        api=ControlApi("", http=api_client(api_urls, streaming(api_transport))),
        assets=assets,
        renderer=Renderer(assets, settings.base_path, clock),
        clock=clock,
        fragments=Fragments(),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await site.api.close()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"There is nothing at {request.url.path}." if error.status_code == 404 else str(error.detail)
        problem = Problem(type="about:blank", title=_titles(error.status_code), status=error.status_code, detail=detail)
        return await errors.page(site, request, problem, signed_in=settings.cookie_name in request.cookies)

    base = settings.base_path
    app = Starlette(
        routes=_routes(site, base),
        lifespan=lifespan,
        exception_handlers={HTTPException: refused},
    )
    return Shield(GZipMiddleware(app, minimum_size=1024, compresslevel=5), settings)


def _routes(site: Site, base: str) -> list[BaseRoute]:
    async def login(request: Request) -> Response:
        return await access.show(site, request)

    async def sign_in(request: Request) -> Response:
        return await access.sign_in(site, request)

    async def asset(request: Request) -> Response:
        return await site.assets.serve(request)

    routes: list[BaseRoute] = [
        Route(f"{base}/static/{{version}}/{{name:path}}", asset),
        Route(f"{base}/login", login, methods=["GET"]),
        Route(f"{base}/login", sign_in, methods=["POST"]),
    ]
    found: list[Routes] = [module.ROUTES for module in PAGE_MODULES if hasattr(module, "ROUTES")]
    exports = {
        f"{path}.{kind}": export.handler(kind) for each in found for path, export in each.exports.items() for kind in ("csv", "json")
    }
    reads = exports | {path: handler for each in found for path, handler in each.pages.items()}
    routes += [Route(base + path, signed_in(site, handler), methods=["POST"]) for each in found for path, handler in each.writes.items()]
    return routes + [Route(base + path, signed_in(site, handler), methods=["GET"]) for path, handler in reads.items()]


def signed_in(site: Site, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The handler, open only to people with a session.

    Writes need the session's form token. Failed calls of the API become error pages or documents.
    """

    async def endpoint(request: Request) -> Response:
        token = request.cookies.get(site.settings.cookie_name)
        if not token or len(token) > access.LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
            return errors.session_ended(site, request)
        ages = watch()
        try:
            if request.method not in SAFE_METHODS:
                form = await request.form()
                given = request.headers.get("x-csrf-token") or str(form.get("csrf", ""))
                if not csrf_matches(token, given):
                    detail = "The form's token does not belong to this session. Nothing was changed; reload the page and submit again."
                    problem = Problem(type="form-token", title="Form refused", status=403, detail=detail, remedy="Reload the page first.")
                    return await errors.page(site, request, problem, signed_in=True)
            visit = visit_of(site, request, token, ages)
            if not shareable(request):
                return await handler(visit)
            named = replace(visit, identity=await visit.api.whoami())  # the API must know the person before a shared part is sent
            return await site.fragments.get(shared_key(named), lambda: handler(named))
        except ClientError as error:
            return await errors.answer(site, request, error)

    return endpoint


def shareable(request: Request) -> bool:
    """Whether the answer depends on address and role alone: regions of live pages, and pictures."""
    return request.method == "GET" and bool(regions_of(request) or request.url.path.endswith(".png"))


def shared_key(visit: Visit) -> tuple[object, ...]:
    """The key under which two requests share an answer.

    `tick` is not part of it: it only keeps a browser from showing an old picture.
    """
    params = tuple(sorted((name, value) for name, value in visit.here.params.items() if name != "tick"))
    role = visit.identity.role if visit.identity else ""
    return visit.here.path, params, regions_of(visit.request), role, visit.request.headers.get("if-none-match")


def _titles(status: int) -> str:
    return {404: "No such page", 405: "This address does not take that"}.get(status, "The request cannot be served")
