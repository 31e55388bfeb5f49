"""What went wrong, as a page: what happened, what is safe to do now, and the next command."""

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from fairlead_client.problems import ClientError
from fairlead_client.resources import Problem
from fairlead_web.addresses import with_query
from fairlead_web.contexts.governance import ErrorPage
from fairlead_web.security import clear_session_cookie
from fairlead_web.visits import Site, here_of, preferences_of, problem_of

REMEDIES = {
    403: ("Ask an admin for a role that may do this; your own is shown in the menu at the top right.", ""),
    404: ("It may have been deleted, or the address is mistyped. Search the lists instead.", "kubectl get fpool --all-namespaces"),
    409: ("Somebody changed it meanwhile. Nothing of yours was applied; look at the present state and plan again.", ""),
    422: ("Nothing was changed. Correct the value and try again.", ""),
    429: ("The control API is busy. Reading again in a moment is safe.", ""),
    503: ("Routers keep serving from their last routing table. Reading again is safe; nothing was lost.", "fairlead status"),
}
LISTY = (".json", ".csv", ".bin", ".png", "/live")


def answer(site: Site, request: Request, error: ClientError) -> Response:
    """The fitting answer to a failed call: back to login, a problem document for data addresses, or an error page."""
    problem = problem_of(error)
    return session_ended(site, request) if problem.status == 401 else page(site, request, problem, signed_in=True)


def page(site: Site, request: Request, problem: Problem, *, signed_in: bool) -> Response:
    """An error page, or the bare problem document where a program asked."""
    if wants_data(request):
        return Response(msgspec.json.encode(problem), problem.status, media_type="application/problem+json")
    remedy, command = REMEDIES.get(
        problem.status, ("Reading again is safe. If it stays, the log of the control API says more.", "fairlead logs api")
    )
    here = here_of(request, site.settings.base_path)
    context = ErrorPage(
        title=problem.title,
        preferences=preferences_of(request),
        problem=problem,
        remedy=remedy,
        command=command,
        retry_path=here.base + here.back if request.method == "GET" else "",
        signed_in=signed_in,
        home=site.settings.base_path + "/",
    )
    headers = {"Retry-After": "5"} if problem.status in {429, 503} else {}
    return HTMLResponse(site.renderer.render(context), problem.status, headers)


def session_ended(site: Site, request: Request) -> Response:
    """No session, or one that ended: pages lead to the login and back; data addresses answer 401; htmx is told to go."""
    here = here_of(request, site.settings.base_path)
    had_one = site.settings.cookie_name in request.cookies
    target = here.back if request.method == "GET" else "/"
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
        clear_session_cookie(response, site.settings)
    return response


def wants_data(request: Request) -> bool:
    """Whether the address is one for programs."""
    return request.url.path.endswith(LISTY)
