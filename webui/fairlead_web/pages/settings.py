"""`/settings`: the reader's preferences, rights and web sessions; for admins also tokens and login links."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.datastructures import FormData
from starlette.responses import Response

from fairlead.schedules.zones import known_zones
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import (
    PEOPLE,
    AccessRole,
    LoginLink,
    LoginLinkRequest,
    Rights,
    TokenItem,
    TokenRequest,
    WebSessionItem,
)
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.security import local_path
from fairlead_web.frame.shells import DENSITIES, THEMES, TIME_MODES, Crumb, Shell
from fairlead_web.frame.visits import DENSITY_COOKIE, PAGE_ROWS, SHORTCUTS_COOKIE, THEME_COOKIE, TIME_COOKIE, ZONE_COOKIE, Visit, zone_of
from fairlead_web.text.typed_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPage(Context):
    """The settings page.

    `zones` are the time zones to choose from, `allows` describes what each role may do. `created` is set only in the
    response that shows a new token's secret; `login_link` is the full address of a new one-time link. `typed_token` and
    `typed_link` are the values that the two forms show, by field; after a refusal, these are the typed values.
    """

    template: ClassVar[str] = "pages/settings.html"
    shell: Shell
    zones: tuple[str, ...]
    allows: tuple[tuple[AccessRole, str], ...]
    sessions: Listing[WebSessionItem] | None
    roles: tuple[AccessRole, ...]
    tokens: Listing[TokenItem] | None
    created: TokenItem | None
    login_link: LoginLink | None
    login_address: str
    typed_token: dict[str, str]
    typed_link: dict[str, str]
    problem: Problem | None


ALLOWS = (
    (AccessRole.VIEWER, "read everything, and export it; no prompts, as none are stored"),
    (AccessRole.OPERATOR, "scale, drain, cordon, schedule, simulate; make keys of the gateway, with the role in all namespaces"),
    (AccessRole.ADMIN, "change policy, objectives, early rejection and specs; hand out tokens and login links"),
)
"""The rights of each role, in addition to the rights of the roles before it."""

YEAR = 365 * 24 * 3600
REFUSALS = frozenset({400, 403, 404, 409, 422})
TOKEN_FIELDS = {"name": "", "role": AccessRole.VIEWER, "namespaces": "", "days": "90"}
LINK_FIELDS = {"subject": "", "role": AccessRole.VIEWER, "namespaces": ""}
"""The fields that the forms for a token and for a login link share, with their initial values."""


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def save(visit: Visit) -> Response:
    """Store the preferences in cookies that scripts may read, and redirect to the page from which the form was sent."""
    form = await visit.form()
    response = visit.redirect(local_path(str(form.get("next", "/settings"))))
    secure = visit.site.settings.secure_cookies
    for field, cookie, allowed in (
        ("theme", THEME_COOKIE, THEMES),
        ("time", TIME_COOKIE, TIME_MODES),
        ("shortcuts", SHORTCUTS_COOKIE, ("on", "off")),
        ("density", DENSITY_COOKIE, DENSITIES),
    ):
        value = form.get(field)
        if value in allowed:
            response.set_cookie(cookie, str(value), max_age=YEAR, path="/", secure=secure, httponly=False, samesite="lax")
    if zone := zone_of(str(form.get("zone", ""))):
        response.set_cookie(ZONE_COOKIE, zone.replace("/", "%2F"), max_age=YEAR, path="/", secure=secure, httponly=False, samesite="lax")
    return response


async def revoke_session(visit: Visit) -> Response:
    try:
        await visit.api.revoke_web_session(visit.request.path_params["session"])
    except ApiProblem as error:
        return await _page(visit, problem=_refusal(error))
    return visit.back_to("/settings")


async def create_token(visit: Visit) -> Response:
    """Create an API token. Only this response shows its secret."""
    form = await visit.form()
    name, role, days = str(form.get("name", "")).strip(), role_of(form), str(form.get("days", ""))
    lasting = whole_number(days)
    typed = typed_of(form, TOKEN_FIELDS)
    if not name or role is None or lasting is None or not 1 <= lasting <= 365:
        wrong_role = f"role: choose one of {', '.join(PEOPLE)}"
        wrong_days = f"days: {days[:50]!r} cannot be used; write a whole number from 1 to 365"
        detail = "name must not be empty" if not name else wrong_role if role is None else wrong_days
        problem = Problem(type="invalid-input", title="Token not created", status=422, detail=detail)
        return await _page(visit, typed_token=typed, problem=problem)
    try:
        everywhere, rights = rights_of(form, role)
        asked = TokenRequest(name=name, role=everywhere, days=lasting, namespaces=rights)
        return await _page(visit, created=await visit.api.create_token(asked))
    except ApiProblem as error:
        return await _page(visit, typed_token=typed, problem=_refusal(error))


async def revoke_token(visit: Visit) -> Response:
    try:
        await visit.api.revoke_token(visit.request.path_params["token"])
    except ApiProblem as error:
        return await _page(visit, problem=_refusal(error))
    return visit.back_to("/settings")


async def create_login_link(visit: Visit) -> Response:
    """Create a one-time login link for another person. Only this response shows it."""
    form = await visit.form()
    role, subject, typed = role_of(form), str(form.get("subject", "")).strip(), typed_of(form, LINK_FIELDS)
    if not subject or role is None:
        detail = "Say who the link is for." if not subject else f"role: choose one of {', '.join(PEOPLE)}"
        problem = Problem(type="invalid-input", title="Link not created", status=422, detail=detail)
        return await _page(visit, typed_link=typed, problem=problem)
    try:
        everywhere, rights = rights_of(form, role)
        asked = LoginLinkRequest(role=everywhere, subject=subject, namespaces=rights)
        return await _page(visit, link=await visit.api.create_login_link(asked))
    except ApiProblem as error:
        return await _page(visit, typed_link=typed, problem=_refusal(error))


def role_of(form: FormData) -> AccessRole | None:
    """Return the role chosen in a form; None if the value is not a role."""
    chosen = str(form.get("role", AccessRole.VIEWER))
    return next((role for role in PEOPLE if role == chosen), None)


def rights_of(form: FormData, role: AccessRole) -> tuple[AccessRole, Rights]:
    """Return the role for all namespaces and the roles by namespace. If the form names namespaces, `role` holds only in
    these.
    """
    named = str(form.get("namespaces", "")).replace(",", " ").split()
    return (AccessRole.NONE, dict.fromkeys(named, role)) if named else (role, {})


def typed_of(form: FormData, fields: dict[str, str]) -> dict[str, str]:
    """Return the form's values of these fields, to show them in the form again."""
    return {name: str(form.get(name, begun)) for name, begun in fields.items()}


def _refusal(error: ApiProblem) -> Problem:
    if error.problem.status not in REFUSALS:
        raise error
    return error.problem


async def _page(
    visit: Visit,
    *,
    created: TokenItem | None = None,
    link: LoginLink | None = None,
    typed_token: dict[str, str] | None = None,
    typed_link: dict[str, str] | None = None,
    problem: Problem | None = None,
) -> Response:
    shell = await visit.shell("Settings", "settings", crumbs=(Crumb(words="Settings"),))
    tokens = None
    if shell.may_somewhere(AccessRole.ADMIN):
        tokens = await visit.attempt("API tokens", visit.api.tokens(cursor=visit.param("cursor"), limit=PAGE_ROWS))
    sessions = await visit.attempt("browser sessions", visit.api.web_sessions(cursor=visit.param("sessions"), limit=PAGE_ROWS))
    context = SettingsPage(
        shell=shell,
        zones=tuple(sorted(known_zones())),
        allows=ALLOWS,
        sessions=sessions,
        roles=PEOPLE,
        tokens=tokens,
        created=created,
        login_link=link,
        login_address=f"{visit.site.settings.public_url}/login?token={link.token}" if link else "",
        typed_token=typed_token or TOKEN_FIELDS,
        typed_link=typed_link or LINK_FIELDS,
        problem=problem,
    )
    return visit.page(context, status=problem.status if problem else 200)


ROUTES = Routes(
    # What was made is shown at the address of its form, once; a reload shows the settings.
    pages=dict.fromkeys(
        (
            "/settings",
            "/settings/tokens",
            "/settings/tokens/{token}/revoke",
            "/settings/login-links",
            "/settings/sessions/{session}/revoke",
        ),
        show,
    ),
    writes={
        "/settings": save,
        "/settings/tokens": create_token,
        "/settings/tokens/{token}/revoke": revoke_token,
        "/settings/login-links": create_login_link,
        "/settings/sessions/{session}/revoke": revoke_session,
    },
    exports={"/settings/tokens": Export(name="tokens"), "/settings/sessions": Export(name="web-sessions")},
)
