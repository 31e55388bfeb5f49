"""`/keys`: API keys of the gateway's clients; operators create, change and revoke them."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import PAGE_ROWS, Visit
from fairlead_web.text.typed_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage(Context):
    """The keys.

    `created` is set only in the answer that shows a new key's secret; `typed` has the values of a refused form, by
    field.
    """

    template: ClassVar[str] = "pages/keys.html"
    shell: Shell
    listing: Listing[GatewayKey]
    created: GatewayKey | None
    typed: dict[str, str]
    problem: Problem | None


FIELDS = dict.fromkeys(("name", "pools", "models", "requests_per_minute", "tokens_per_minute", "priority_class", "explain"), "") | {
    "days": "90"
}
"""The form's fields, and their initial values."""
REFUSALS = frozenset({400, 403, 404, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def create(visit: Visit) -> Response:
    """Make a key. Its secret is shown in this answer only."""
    form = await visit.form()
    typed = {name: str(form.get(name, "")).strip() for name in FIELDS}
    wrong = next(
        (name for name in ("days", "requests_per_minute", "tokens_per_minute") if typed[name] and whole_number(typed[name]) is None), None
    )
    if wrong is not None:
        detail = f"{wrong}: {typed[wrong][:50]!r} cannot be used; write a whole number, or nothing"
        return await _page(visit, typed=typed, problem=Problem(type="invalid-input", title="Key not created", status=422, detail=detail))
    request = GatewayKeyRequest(
        name=typed["name"],
        pools=_words(typed["pools"]),
        models=_words(typed["models"]),
        days=whole_number(typed["days"]),
        requests_per_minute=whole_number(typed["requests_per_minute"]),
        tokens_per_minute=whole_number(typed["tokens_per_minute"]),
        priority_class=typed["priority_class"] or None,
        explain=bool(typed["explain"]),
    )
    try:
        return await _page(visit, created=await visit.api.create_gateway_key(request))
    except ApiProblem as error:
        return await _refused(visit, error, typed)


async def change(visit: Visit) -> Response:
    """Allow a key's requests to have their decisions kept, or stop allowing it."""
    asked = GatewayKeyChange(explain=bool((await visit.form()).get("explain")))
    try:
        await visit.api.change_gateway_key(visit.request.path_params["key"], asked)
    except ApiProblem as error:
        return await _refused(visit, error, {})
    return visit.redirect("/keys")


async def revoke(visit: Visit) -> Response:
    try:
        await visit.api.revoke_gateway_key(visit.request.path_params["key"])
    except ApiProblem as error:
        return await _refused(visit, error, {})
    return visit.redirect("/keys")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


async def _refused(visit: Visit, error: ApiProblem, typed: dict[str, str]) -> Response:
    if error.problem.status not in REFUSALS:
        raise error
    return await _page(visit, typed=typed, problem=error.problem)


async def _page(
    visit: Visit, *, created: GatewayKey | None = None, typed: dict[str, str] | None = None, problem: Problem | None = None
) -> Response:
    shell = await visit.shell("Gateway keys", "keys", crumbs=(Crumb(words="Gateway keys"),))
    listing = await visit.api.gateway_keys(cursor=visit.param("cursor"), limit=PAGE_ROWS)
    context = KeysPage(shell=shell, listing=listing, created=created, typed=typed or FIELDS, problem=problem)
    return visit.page(context, status=problem.status if problem else 200)


ROUTES = Routes(
    # What was made is shown at the address of its form, once; a reload shows the list.
    pages=dict.fromkeys(("/keys", "/keys/new", "/keys/{key}/explain", "/keys/{key}/revoke"), show),
    writes={"/keys/new": create, "/keys/{key}/explain": change, "/keys/{key}/revoke": revoke},
    exports={"/keys": Export(name="gateway-keys")},
)
