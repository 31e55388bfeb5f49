"""Error pages: what happened, what is safe to do now, and the next command."""

from dataclasses import dataclass, replace
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from fairlead_client.problems import ClientError
from fairlead_client.resources.problems import Problem, SessionOfKey
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.security import clear_session_cookie, local_path, session_of
from fairlead_web.frame.shells import Preferences, Shell
from fairlead_web.frame.visits import Site, here_of, preferences_of, problem_of, visit_of
from fairlead_web.text.addresses import Here, session_path, tree_path, with_query


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContent:
    """The content of an error page. `remedy` is a sentence that says what to do now. `retry_path` is set if it is safe
    to try again; the form data `sent` are then sent to this path. `form_path` leads back to the page of a refused form.
    `search` is the name of a list in which the person may search.

    `choices` is filled if several sessions have the name in the address. It has, for each of these sessions, the path
    of the page about that session, the session's identity, and the name of its key.
    """

    problem: Problem
    remedy: str
    command: str
    retry_path: str
    form_path: str
    search: str
    sent: tuple[tuple[str, str], ...] = ()
    choices: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage(Context):
    """An error page within the site's navigation."""

    template: ClassVar[str] = "pages/error.html"
    shell: Shell
    content: ErrorContent


@dataclass(frozen=True, slots=True, kw_only=True)
class BareErrorPage(Context):
    """An error page for a visitor who is not signed in."""

    template: ClassVar[str] = "pages/error_bare.html"
    title: str
    preferences: Preferences
    content: ErrorContent
    home: str


REMEDIES = {
    403: ("Ask an admin for a role that may do this, under the name above. The page Settings shows your rights and groups.", ""),
    404: ("It may have been deleted or be older than what is kept, or the address is mistyped.", ""),
    409: ("Somebody changed it meanwhile. Your change was not applied; look at the present state and plan again.", ""),
    422: ("Nothing was changed. Correct the value and try again.", ""),
    429: ("The control API is busy. Reading again in a moment is safe.", ""),
    503: ("Routers keep serving from their last routing table. Reading again is safe; nothing was lost.", "fairlead status"),
}
CHOOSE = "Choose the session that you mean."
POOL_COMMAND = "kubectl get fpool --all-namespaces"
SEARCHED = {
    "pools": "pools",
    "sessions": "sessions",
    "migrations": "migrations",
    "decisions": "decisions",
    "audit": "audit",
    "plans": "audit",
}
"""For each section of the site, the list in which a person may search if an object of the section does not exist."""

PASSING = frozenset({429, 503})
"""HTTP statuses of problems that may soon end."""

LISTY = (".json", ".csv", ".bin", ".png", "/live")


async def answer(site: Site, request: Request, error: ClientError) -> Response:
    """Return the response to a request of a browser whose call of the API failed: a redirect to the login, a problem
    document for data addresses, or an error page.
    """
    problem = problem_of(error)
    return session_ended(site, request) if problem.status == 401 else await page(site, request, problem, signed_in=True)


async def page(site: Site, request: Request, problem: Problem, *, signed_in: bool) -> Response:
    """Return an error page, inside the site's navigation for people who are signed in; for a program, return only the
    problem document.
    """
    if wants_data(request):
        return Response(msgspec.json.encode(problem), problem.status, media_type="application/problem+json")
    remedy, command = REMEDIES.get(
        problem.status, ("Reading again is safe. If the error stays, read the log of the control API.", "fairlead logs api")
    )
    here = here_of(request, site.settings.base_path)
    kind = next((name for name in SEARCHED if here.path.startswith(f"/{name}")), "")
    sent = await _sent(request, here.path) if signed_in and problem.status in PASSING else ()
    content = ErrorContent(
        problem=problem,
        remedy=CHOOSE if problem.sessions else problem.remedy or remedy if problem.type == "not-sampled" else remedy,
        command=POOL_COMMAND if problem.status == 404 and kind == "pools" else command,
        retry_path=here.base + here.back
        if sent or (request.method == "GET" and problem.status not in {403, 404} and not problem.sessions)
        else "",
        form_path="" if request.method == "GET" or not signed_in else _form_path(request, here.base),
        sent=sent,
        search=SEARCHED.get(kind, "sessions") if problem.status == 404 else "",
        choices=tuple((_path_with(here, one), one.session, one.key) for one in problem.sessions or ()),
    )
    headers = {"Retry-After": "5"} if problem.status in PASSING else {}
    context = await _context(site, request, content, kind) if signed_in else _bare(site, request, content)
    return HTMLResponse(site.renderer.render(context), problem.status, headers)


def _path_with(here: Here, one: SessionOfKey) -> str:
    """Return the path of the same page for one of the sessions that have the name in the address."""
    if here.params.get("session"):
        return with_query(here.path, {**here.params, "session": one.session})
    return (tree_path if here.path.startswith("/trees/") else session_path)(one.pool, one.session)


async def _sent(request: Request, path: str) -> tuple[tuple[str, str], ...]:
    """Return the submitted fields of a form about plans; () for other forms. The fields may be sent again, because a
    plan is never made or applied twice.
    """
    if request.method != "POST" or not (path.endswith("/plans") or path.startswith("/plans/")):
        return ()
    return tuple((name, value) for name, value in (await request.form()).multi_items() if isinstance(value, str))


async def _context(site: Site, request: Request, content: ErrorContent, section: str) -> ErrorPage | BareErrorPage:
    """Return the error page within the site's navigation, or without it if the API does not return the identity and the
    pools.
    """
    token = session_of(request, site.settings) or ""
    if not token.isascii():
        return _bare(site, request, content)
    visit = visit_of(site, request, token, [])
    try:
        shell = await visit.shell(content.problem.title, section)
    except ClientError:
        shell = visit.frame(content.problem.title, section, None, [])
    return ErrorPage(shell=replace(shell, partial=()), content=content)


def _bare(site: Site, request: Request, content: ErrorContent) -> BareErrorPage:
    home = site.settings.base_path + "/"
    return BareErrorPage(title=content.problem.title, preferences=preferences_of(request), content=content, home=home)


def session_ended(site: Site, request: Request) -> Response:
    """Return the response to a request that has no valid session.

    Pages redirect to the login, which leads back to the page; data addresses respond with 401; htmx gets a header that
    redirects. The live stream of an open page responds with 401 and does not redirect, because the page must first
    store typed text. After that, the page's next request redirects.
    """
    here = here_of(request, site.settings.base_path)
    if here.path == "/live":
        return JSONResponse(
            {"type": "unauthenticated", "title": "Sign in first", "status": 401}, 401, media_type="application/problem+json"
        )
    had_one = session_of(request, site.settings) is not None
    target = here.back if request.method == "GET" else _came_from(request, here.base)
    login = site.settings.base_path + with_query("/login", {"next": target if target != "/" else None, "ended": "1" if had_one else None})
    response: Response
    if request.headers.get("hx-request"):
        response = Response(status_code=401, headers={"HX-Redirect": login})
    elif wants_data(request):
        problem = {"type": "unauthenticated", "title": "Sign in first", "status": 401, "detail": f"Open {login} in a browser."}
        response = JSONResponse(problem, 401, media_type="application/problem+json")
    else:
        response = RedirectResponse(login, 303)
    if had_one:
        clear_session_cookie(request, response, site.settings)
    return response


def _came_from(request: Request, base: str) -> str:
    """Return the path of the page whose form was sent, to return to it after the login; `/` if the browser does not
    name that page, or names a page of another site.
    """
    page = urlsplit(request.headers.get("referer", ""))
    if page.netloc != request.headers.get("host", "") or not page.path.startswith(base):
        return "/"
    return local_path((page.path.removeprefix(base) or "/") + (f"?{page.query}" if page.query else ""))


def _form_path(request: Request, base: str) -> str:
    """Return the address of the page whose form was sent; empty if the browser does not name one."""
    came_from = _came_from(request, base)
    return "" if came_from == "/" else base + came_from


def wants_data(request: Request) -> bool:
    """Return whether the requested address is for programs: according to its route, or if it has no route, according to
    its ending.
    """
    return bool(getattr(request.state, "for_programs", request.url.path.endswith(LISTY)))
