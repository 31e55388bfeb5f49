"""`/login`, `/logout`: a one-time link or a pasted token becomes a session.

Opening a link changes nothing, so a preview does not use it up.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.resources.access import LoginMode, LoginModes
from fairlead_client.resources.problems import Problem
from fairlead_web.rendering import Context
from fairlead_web.routes import Routes
from fairlead_web.security import clear_session_cookie, local_path, set_session_cookie
from fairlead_web.shells import Preferences
from fairlead_web.visits import Site, Visit, preferences_of, problem_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage(Context):
    """The login page.

    `token` comes from a one-time link and stays in the form until the person presses the button; `problem` says why the
    last try failed. `modes` are the ways that the API offers, with the `audience` of Kubernetes tokens; none while it
    does not answer.
    """

    template: ClassVar[str] = "pages/login.html"
    title: str
    preferences: Preferences
    token: str
    next: str
    problem: Problem | None
    ended: bool
    modes: tuple[LoginMode, ...]
    audience: str | None


LONGEST_COOKIE = 512
LONGEST_TOKEN = 8192
"""A Kubernetes token, a signed document, is a few kB."""


async def show(site: Site, request: Request) -> Response:
    token = request.query_params.get("token", "")[:LONGEST_TOKEN]
    return await _page(site, request, token, request.query_params.get("next"), None, ended="ended" in request.query_params)


async def sign_in(site: Site, request: Request) -> Response:
    """Exchanges the token for a session; the page says why when that fails and keeps nothing of the token."""
    form = await request.form()
    token, target = str(form.get("token", "")).strip(), local_path(str(form.get("next", "/")))
    if len(token) > LONGEST_TOKEN or not token.isprintable() or (not token and form.get("mode") != LoginMode.OPEN):
        problem = Problem(type="invalid-input", title="No token", status=422, detail="Paste the token, or open the login link again.")
        return await _page(site, request, "", target, problem)
    try:
        session = await site.api.login(token, address=request.client.host if request.client else None)
    except (ApiProblem, ApiUnreachable) as error:
        return await _page(site, request, "", target, problem_of(error))
    response = RedirectResponse(site.settings.base_path + target, 303)
    set_session_cookie(response, site.settings, session.token)
    return response


async def sign_out(visit: Visit) -> Response:
    """Ends the session in the API first, so that a copied cookie dies with it."""
    try:
        await visit.api.logout()
    except ApiProblem as error:
        if error.problem.status != 401:
            raise
    response = RedirectResponse(visit.link("/login"), 303)
    clear_session_cookie(response, visit.site.settings)
    return response


async def _page(site: Site, request: Request, token: str, target: str | None, problem: Problem | None, *, ended: bool = False) -> Response:
    try:
        offered = await site.api.login_modes()
    except (ApiProblem, ApiUnreachable) as error:
        offered, problem = LoginModes(modes=()), problem or problem_of(error)
    context = LoginPage(
        title="Sign in",
        preferences=preferences_of(request),
        token=token,
        next=local_path(target),
        problem=problem,
        ended=ended,
        modes=offered.modes,
        audience=offered.audience,
    )
    return HTMLResponse(site.renderer.render(context), problem.status if problem else 200)


ROUTES = Routes(writes={"/logout": sign_out})
