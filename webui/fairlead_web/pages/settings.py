"""`/settings`: the reader's preferences; API tokens and one-time login links for admins."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.datastructures import FormData
from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import PEOPLE, AccessRole, LoginLink, LoginLinkRequest, TokenItem, TokenRequest
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_web.rendering import Context
from fairlead_web.routes import Routes
from fairlead_web.security import local_path
from fairlead_web.shells import THEMES, TIME_MODES, Crumb, Shell
from fairlead_web.visits import PAGE_ROWS, SHORTCUTS_COOKIE, THEME_COOKIE, TIME_COOKIE, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPage(Context):
    """The settings page.

    `created` is set only in the answer that shows a new token's secret; `login_link` is the full address of a new
    one-time link.
    """

    template: ClassVar[str] = "pages/settings.html"
    shell: Shell
    roles: tuple[AccessRole, ...]
    tokens: Listing[TokenItem] | None
    created: TokenItem | None
    login_link: LoginLink | None
    login_address: str
    problem: Problem | None


YEAR = 365 * 24 * 3600
REFUSALS = frozenset({400, 403, 404, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def save(visit: Visit) -> Response:
    """Stores preferences in cookies that scripts may read, and redirects to the page of the form."""
    form = await visit.form()
    response = visit.redirect(local_path(str(form.get("next", "/settings"))))
    secure = visit.site.settings.secure_cookies
    for field, cookie, allowed in (
        ("theme", THEME_COOKIE, THEMES),
        ("time", TIME_COOKIE, TIME_MODES),
        ("shortcuts", SHORTCUTS_COOKIE, ("on", "off")),
    ):
        value = form.get(field)
        if value in allowed:
            response.set_cookie(cookie, str(value), max_age=YEAR, path="/", secure=secure, httponly=False, samesite="lax")
    return response


async def create_token(visit: Visit) -> Response:
    """Create an API token. Its secret is shown in this answer only."""
    form = await visit.form()
    name, role, days = str(form.get("name", "")).strip(), role_of(form), str(form.get("days", ""))
    if not name or role is None or not days.isdigit() or not 1 <= int(days) <= 365:
        wrong_role = f"role: choose one of {', '.join(PEOPLE)}"
        wrong_days = f"days: {days!r} cannot be used; write a whole number from 1 to 365"
        detail = "name must not be empty" if not name else wrong_role if role is None else wrong_days
        return await _page(visit, problem=Problem(type="invalid-input", title="Token not created", status=422, detail=detail))
    try:
        return await _page(visit, created=await visit.api.create_token(TokenRequest(name=name, role=role, days=int(days))))
    except ApiProblem as error:
        return await _refused(visit, error)


async def revoke_token(visit: Visit) -> Response:
    try:
        await visit.api.revoke_token(visit.request.path_params["token"])
    except ApiProblem as error:
        return await _refused(visit, error)
    return visit.redirect("/settings")


async def create_login_link(visit: Visit) -> Response:
    """A one-time link to hand to a colleague; shown once."""
    form = await visit.form()
    role, subject = role_of(form), str(form.get("subject", "")).strip()
    if not subject or role is None:
        detail = "Say who the link is for." if not subject else f"role: choose one of {', '.join(PEOPLE)}"
        return await _page(visit, problem=Problem(type="invalid-input", title="Link not created", status=422, detail=detail))
    try:
        return await _page(visit, link=await visit.api.create_login_link(LoginLinkRequest(role=role, subject=subject)))
    except ApiProblem as error:
        return await _refused(visit, error)


def role_of(form: FormData) -> AccessRole | None:
    """The role chosen in a form; None if the value is not a role."""
    chosen = str(form.get("role", AccessRole.VIEWER))
    return next((role for role in PEOPLE if role == chosen), None)


async def _refused(visit: Visit, error: ApiProblem) -> Response:
    if error.problem.status not in REFUSALS:
        raise error
    return await _page(visit, problem=error.problem)


async def _page(
    visit: Visit, *, created: TokenItem | None = None, link: LoginLink | None = None, problem: Problem | None = None
) -> Response:
    shell = await visit.shell("Settings", "settings", crumbs=(Crumb(words="Settings"),))
    tokens = await visit.attempt("API tokens", visit.api.tokens(limit=PAGE_ROWS)) if shell.may(AccessRole.ADMIN) else None
    context = SettingsPage(
        shell=shell,
        roles=PEOPLE,
        tokens=tokens,
        created=created,
        login_link=link,
        login_address=f"{visit.site.settings.public_url}/login?token={link.token}" if link else "",
        problem=problem,
    )
    return visit.page(context, status=problem.status if problem else 200)


ROUTES = Routes(
    # What was made is shown at the address of its form, once; a reload shows the settings.
    pages=dict.fromkeys(("/settings", "/settings/tokens", "/settings/tokens/{token}/revoke", "/settings/login-links"), show),
    writes={
        "/settings": save,
        "/settings/tokens": create_token,
        "/settings/tokens/{token}/revoke": revoke_token,
        "/settings/login-links": create_login_link,
    },
)
