"""`/login`, `/logout`: exchanges a one-time link, a pasted token or an identity provider's response for a session.
Opening a link changes nothing, so that a program that previews the link does not use it up.
"""

import secrets
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.resources.access import LoginMode, LoginModes, OidcLoginRequest
from fairlead_client.resources.problems import Problem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.security import (
    clear_attempt_cookie,
    clear_session_cookie,
    host_of,
    local_path,
    set_attempt_cookie,
    set_session_cookie,
)
from fairlead_web.frame.shells import Preferences
from fairlead_web.frame.sign_in_attempts import attempt_of, begun
from fairlead_web.frame.visits import Site, Visit, preferences_of, problem_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage(Context):
    """The login page.

    `token` is from a one-time link and stays in the form until the person presses the button. `problem` is the reason
    why the last attempt failed. `modes` are the ways to sign in that the API offers (empty while the API does not
    respond). `audience` is the audience that a Kubernetes token must have, and `provider` the host of the identity
    provider.
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
    provider: str | None


LONGEST_COOKIE = 512
LONGEST_FORM = 64 * 1024
"""Maximum size in bytes of the login form, which anybody may send."""
LONGEST_TOKEN = 8192
"""Maximum length of a token. A Kubernetes token, which is a signed document, has a few kB."""


async def show(site: Site, request: Request) -> Response:
    token = request.query_params.get("token", "")[:LONGEST_TOKEN]
    return await _page(site, request, token, request.query_params.get("next"), None, ended="ended" in request.query_params)


async def sign_in(site: Site, request: Request) -> Response:
    """Exchange the submitted token for a session. If the exchange fails, the page shows the reason, but no part of the
    token.
    """
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
    set_session_cookie(request, response, site.settings, session.token)
    return response


async def begin(site: Site, request: Request) -> Response:
    """Redirect the browser to the identity provider to sign in."""
    target = local_path(request.query_params.get("next"))
    try:
        provider = await site.api.oidc_provider()
    except (ApiProblem, ApiUnreachable) as error:
        return await _page(site, request, "", target, problem_of(error))
    attempt = begun(target, lambda: secrets.token_urlsafe(32))
    response = RedirectResponse(attempt.address(provider, _redirect_uri(site)), 303)
    set_attempt_cookie(request, response, site.settings, attempt.cookie())
    return response


async def answer(site: Site, request: Request) -> Response:
    """Complete a sign-in when the browser returns from the identity provider."""
    attempt = attempt_of(request.cookies.get(site.settings.attempt_cookie_name(host_of(request))))
    if attempt is None:
        detail = (
            f"This sign-in was begun in another browser, at an address other than {site.settings.public_url}, or too long ago; begin again."
        )
        return await _refused(site, request, None, Problem(type="sign-in", title="Not signed in", status=422, detail=detail))
    brought, target = dict(request.query_params), local_path(attempt.target)
    try:
        refusal = attempt.refusal(brought, await site.api.oidc_provider())
        if refusal is not None:
            return await _refused(site, request, target, Problem(type="sign-in", title="Not signed in", status=422, detail=refusal))
        told = OidcLoginRequest(code=brought["code"], code_verifier=attempt.verifier, nonce=attempt.nonce, redirect_uri=_redirect_uri(site))
        session = await site.api.login_with_oidc(told, address=request.client.host if request.client else None)
    except (ApiProblem, ApiUnreachable) as error:
        return await _refused(site, request, target, problem_of(error))
    response = RedirectResponse(site.settings.base_path + target, 303)
    set_session_cookie(request, response, site.settings, session.token)
    clear_attempt_cookie(request, response, site.settings)
    return response


async def _refused(site: Site, request: Request, target: str | None, problem: Problem) -> Response:
    response = await _page(site, request, "", target, problem)
    clear_attempt_cookie(request, response, site.settings)
    return response


def _redirect_uri(site: Site) -> str:
    return f"{site.settings.public_url}/login/oidc/answer"


async def sign_out(visit: Visit) -> Response:
    """End the session in the API, and then in the browser, so that a copied cookie becomes useless too."""
    try:
        await visit.api.logout()
    except ApiProblem as error:
        if error.problem.status != 401:
            raise
    response = RedirectResponse(visit.link("/login"), 303)
    clear_session_cookie(visit.request, response, visit.site.settings)
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
        provider=urlsplit(offered.issuer).hostname if offered.issuer else None,
    )
    return HTMLResponse(site.renderer.render(context), problem.status if problem else 200)


ROUTES = Routes(writes={"/logout": sign_out})
