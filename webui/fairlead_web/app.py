"""Wiring of the web UI: settings, API client, routes, and the checks that every request passes.

Only this module connects pages to URL paths.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from re import Pattern
from typing import Any
from urllib.parse import unquote

import httpx
from starlette.applications import Starlette
from starlette.convertors import Convertor
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, compile_path
from starlette.types import ASGIApp, Message

from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ClientError
from fairlead_client.resources.problems import Problem
from fairlead_process.clock import utc_now
from fairlead_web import pages as page_modules
from fairlead_web.forms.uploaded_traces import MOST_BYTES
from fairlead_web.frame.assets import load_assets
from fairlead_web.frame.metrics import Measured, WebMetrics
from fairlead_web.frame.rendering import Renderer
from fairlead_web.frame.routes import Handler, Routes
from fairlead_web.frame.security import SAFE_METHODS, Shield, csrf_matches, session_of
from fairlead_web.frame.settings import web_settings
from fairlead_web.frame.visits import Site, Visit, regions_of, visit_of
from fairlead_web.live.api_connections import api_client, streaming, watch
from fairlead_web.live.clusters import NO_CLUSTERS, Clusters, ClusterSettings
from fairlead_web.live.fragments import PICTURE_SECONDS, SECONDS, Fragments
from fairlead_web.live.paces import Paces
from fairlead_web.live.turns import Turns
from fairlead_web.pages import access, errors, simulator, streams
from fairlead_web.text.outside_links import NO_LINKS, LinkPatterns

Compiled = tuple[Pattern[str], str, dict[str, Convertor[Any]]]
PAGE_MODULES = tuple(import_module(f"{page_modules.__name__}.{one.name}") for one in iter_modules(page_modules.__path__))
"""Every module of pages. The constant `ROUTES` of such a module lists its paths (`errors` has none)."""

MOST_FORM_BYTES = 1024 * 1024
"""Maximum number of bytes of a submitted form that has no file upload."""

SHARED = (".png", "/series.json")
"""Endings of paths (pictures, and the data of charts) whose responses depend only on the address and the caller's
rights. People with equal rights may therefore get the same response. The same is true of the regions of live pages.
"""


def create_web_app(
    api_transport: httpx.AsyncBaseTransport | None,
    api_urls: str | Sequence[str],
    public_url: str,
    secure_cookies: bool | None = None,
    clock: Callable[[], datetime] = utc_now,
    links: LinkPatterns = NO_LINKS,
    clusters: ClusterSettings = NO_CLUSTERS,
    metrics: WebMetrics | None = None,
) -> ASGIApp:
    """Create the web UI as an ASGI app. `api_transport` reaches a control API in this process; if it is None, the
    control API is called over the network at `api_urls`.

    `public_url` is the address that people open. If `secure_cookies` is None, the scheme of `public_url` decides
    whether cookies are secure. `links` are shown as links to other tools, and `clusters` are shown on a page together
    with this cluster. Requests are counted in `metrics`. Raises InvalidInput for an address that cannot be used.
    """
    metrics = metrics or WebMetrics()
    settings, assets = web_settings(public_url, secure_cookies), load_assets()
    site = Site(
        settings=settings,
        links=links,
        clusters=Clusters(clusters, clock),
        api=ControlApi("", http=api_client(api_urls, streaming(api_transport))),
        assets=assets,
        renderer=Renderer(assets, settings.base_path, clock),
        clock=clock,
        fragments=Fragments(),
        turns=Turns(),
        paces=Paces(),
        metrics=metrics,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await site.clusters.close()
        await site.api.close()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"There is nothing at {request.url.path}." if error.status_code == 404 else str(error.detail)
        problem = Problem(type="about:blank", title=_titles(error.status_code), status=error.status_code, detail=detail)
        return await errors.page(site, request, problem, signed_in=session_of(request, settings) is not None)

    base = settings.base_path
    app = Starlette(
        routes=_routes(site, base),
        lifespan=lifespan,
        exception_handlers={HTTPException: refused},
    )
    return Measured(Shield(GZipMiddleware(app, minimum_size=1024, compresslevel=5), settings), metrics)


def _routes(site: Site, base: str) -> list[BaseRoute]:
    async def login(request: Request) -> Response:
        return await access.show(site, request)

    async def sign_in(request: Request) -> Response:
        return await access.sign_in(site, bounded(request, access.LONGEST_FORM))

    async def begin_sign_in(request: Request) -> Response:
        return await access.begin(site, request)

    async def end_sign_in(request: Request) -> Response:
        return await access.answer(site, request)

    async def asset(request: Request) -> Response:
        return await site.assets.serve(request)

    async def live(visit: Visit) -> Response:
        return await streams.live(visit, partial(parts, handlers))

    routes: list[BaseRoute] = [
        Route(f"{base}/static/{{version}}/{{name:path}}", asset),
        Route(f"{base}/login", login, methods=["GET"]),
        Route(f"{base}/login", sign_in, methods=["POST"]),
        Route(f"{base}/login/oidc", begin_sign_in, methods=["GET"]),
        Route(f"{base}/login/oidc/answer", end_sign_in, methods=["GET"]),
    ]
    found: list[Routes] = [module.ROUTES for module in PAGE_MODULES if hasattr(module, "ROUTES")]
    exports = {
        f"{path}.{kind}": export.handler(kind) for each in found for path, export in each.exports.items() for kind in ("csv", "json")
    }
    pages = {path: handler if "." in path.rpartition("/")[2] else framed(handler) for each in found for path, handler in each.pages.items()}
    handlers = [(compile_path(path), handler) for path, handler in pages.items()]
    reads: dict[str, Handler] = exports | pages
    routes.append(Route(f"{base}/live", signed_in(site, "/live", live, people_wait=False), methods=["GET"]))
    routes += [
        Route(base + path, signed_in(site, path, handler), methods=["POST"]) for each in found for path, handler in each.writes.items()
    ]
    return routes + [Route(base + path, signed_in(site, path, handler), methods=["GET"]) for path, handler in reads.items()]


def framed(handler: Handler) -> Handler:
    """Return a handler that requests the data of the page's frame (sidebar and head) before the page's own data. A file
    has no frame.
    """

    async def handle(visit: Visit) -> Response:
        with visit.asking_ahead() as asking:
            return await handler(asking)

    return handle


def signed_in(site: Site, path: str, handler: Handler, *, people_wait: bool = True) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that only people with a session can use. With `people_wait`, a person waits for the handler's
    response, so the handler runs before renderings that refresh open pages.

    Writes need the session's form token. If a call of the API fails, the response is an error page or a problem
    document. The route's `path` decides between the two. The requested address could not, because it may end in a
    session's id, and such an id may look like the ending of a file.
    """
    shared = path.endswith(SHARED)
    for_programs = path.endswith(errors.LISTY)

    async def endpoint(request: Request) -> Response:
        request.state.for_programs, request.state.route = for_programs, path
        token = session_of(request, site.settings)
        if not token or len(token) > access.LONGEST_COOKIE or not (token.isascii() and token.isprintable()):
            return errors.session_ended(site, request)
        ages = watch()
        try:
            if request.method not in SAFE_METHODS:
                uploads = path == simulator.SIMULATOR
                if uploads:
                    await site.api.with_token(token).whoami()  # anybody can make up a cookie: a stranger's upload is not read
                request = bounded(request, MOST_BYTES if uploads else MOST_FORM_BYTES)
                form = await request.form()
                given = request.headers.get("x-csrf-token") or str(form.get("csrf", ""))
                if not csrf_matches(token, given):
                    detail = "The form's token does not belong to this session. Nothing was changed; reload the page and submit again."
                    problem = Problem(type="form-token", title="Form refused", status=403, detail=detail, remedy="Reload the page first.")
                    return await errors.page(site, request, problem, signed_in=True)
            visit = visit_of(site, request, token, ages)
            if request.method != "GET" or not (shared or regions_of(request)):
                async with site.turns.first() if people_wait else nullcontext():
                    return await handler(visit)
            named = replace(visit, identity=await visit.api.whoami())  # the API must know the person before a shared part is sent
            return await site.fragments.get(shared_key(named), lambda: handler(named), SECONDS if regions_of(request) else PICTURE_SECONDS)
        except ClientError as error:
            site.metrics.api_problems.labels(str(error.problem.status) if isinstance(error, ApiProblem) else "0").inc()
            return await errors.answer(site, request, error)

    return endpoint


def bounded(request: Request, most: int) -> Request:
    """Return the request, limited: reading its body raises HTTPException 413 if the body has more than `most` bytes."""
    seen = 0

    async def receive() -> Message:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > most:
            size = f"{most // 1024 // 1024} MiB" if most >= 1024 * 1024 else f"{most // 1024} KiB"
            raise HTTPException(413, f"The form is larger than {size}. Nothing was changed.")
        return message

    return Request(request.scope, receive)


async def parts(handlers: Sequence[tuple[Compiled, Handler]], visit: Visit, address: str, names: tuple[str, ...], stamp: str) -> bytes:
    """Render the named parts of the page at `address`, as this person may see them.

    Raises ClientError if they cannot be rendered. Requests of people with the same rights share one rendering if they
    have the same `stamp`, which names the event or tick that caused the rendering.
    """
    base = visit.site.settings.base_path
    path, _, query = address.partition("?")
    decoded = unquote(path.removeprefix(base))
    found = next(((match, converted, one) for (regex, _, converted), one in handlers if (match := regex.match(decoded))), None)
    if found is None:
        raise _not_rendered(404)
    match, convertors, handler = found
    left_out = (b"fairlead-regions", b"if-none-match")
    headers = [pair for pair in visit.request.scope["headers"] if pair[0] not in left_out]
    scope = {
        **visit.request.scope,
        "path": base + decoded,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*headers, (b"fairlead-regions", " ".join(names).encode())],
        "path_params": {name: convertors[name].convert(value) for name, value in match.groupdict().items()},
    }
    other = replace(visit_of(visit.site, Request(scope), visit.token, watch()), identity=visit.identity)

    async def rendered() -> Response:
        async with visit.site.turns.after():
            return await handler(other)

    answer = await visit.site.fragments.get((*shared_key(other), stamp), rendered)
    if answer.status_code != 200:
        raise _not_rendered(answer.status_code)
    return bytes(answer.body)


def shared_key(visit: Visit) -> tuple[object, ...]:
    """Return the key by which requests share a response. The key excludes the parameter `tick`, which only prevents
    browsers from showing a cached picture.
    """
    params = tuple(sorted((name, value) for name, value in visit.here.params.items() if name != "tick"))
    return visit.here.path, params, regions_of(visit.request), visit.rights, visit.request.headers.get("if-none-match")


def _not_rendered(status: int) -> ApiProblem:
    return ApiProblem(Problem(type="about:blank", title=_titles(status), status=status, detail="The parts of the page cannot be rendered."))


def _titles(status: int) -> str:
    return {404: "No such page", 405: "Method not allowed here", 413: "Too large"}.get(status, "The request cannot be served")
