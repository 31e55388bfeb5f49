"""`/keys`: gateway keys, which operators create, change and revoke."""

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar

from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest, GatewayKeyRotation
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import PAGE_ROWS, Visit
from fairlead_web.text import formats
from fairlead_web.text.typed_text import ungrouped, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage(Context):
    """The page of gateway keys.

    `created` is set only in the response that shows a new secret; `typed` has the values of a refused form, by field.
    """

    template: ClassVar[str] = "pages/keys.html"
    shell: Shell
    listing: Listing[GatewayKey]
    created: GatewayKey | None
    rotated: bool
    typed: dict[str, str]
    present: dict[str, dict[str, str]]
    """The values of the form that changes each key, by the key's id."""
    former: dict[str, dict[str, str]]
    """The values with which each form was opened, by the key's id. Only a field whose value differs from its former
    value is changed, so two people can edit a key at the same time.
    """
    edited: str | None
    """The id of the key whose form is open; None if no form is open."""
    problem: Problem | None


FIELDS = dict.fromkeys(
    (
        "name",
        "pools",
        "models",
        "requests_per_minute",
        "tokens_per_minute",
        "priority_class",
        "explain",
        "budget_day",
        "budget_month",
        "budget_currency",
    ),
    "",
) | {"days": "90"}
"""The fields of the form for a key, with their initial values."""
FORMER = "former."
"""Prefix of the names of the hidden fields. A hidden field has the value with which the form was opened."""
LABELS = {
    "name": "Name",
    "pools": "Pools",
    "models": "Models",
    "days": "Days",
    "hours": "Hours",
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "budget_day": "Budget a day",
    "budget_month": "Budget a month",
    "budget_currency": "Currency",
    "priority_class": "Priority class",
}
"""The label of each field of the form. Messages name a refused field by its label."""
REFUSALS = frozenset({400, 403, 404, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def create(visit: Visit) -> Response:
    """Make a gateway key. Only this response shows its secret."""
    typed = await _typed(visit)
    try:
        return await _page(visit, created=await visit.api.create_gateway_key(_request(typed)))
    except InvalidInput as error:
        return await _page(visit, typed=typed, problem=_problem(error))
    except ApiProblem as error:
        return await _refused(visit, error, typed)


async def change(visit: Visit) -> Response:
    """Change a gateway key. If the form is refused, it stays open in the key's row."""
    key, typed, former = _key(visit), await _typed(visit), await _former(visit)
    try:
        await visit.api.change_gateway_key(key, _change(typed, former))
    except InvalidInput as error:
        return await _page(visit, edited=key, typed=typed, former=former, problem=_problem(error))
    except ApiProblem as error:
        return await _refused(visit, error, typed, edited=key, former=former)
    return visit.back_to("/keys")


async def rotate(visit: Visit) -> Response:
    """Give a gateway key another secret. Only this response shows the secret."""
    hours = str((await visit.form()).get("hours", "")).strip()
    try:
        rotation = GatewayKeyRotation(hours=_whole("hours", hours) or 0)
        return await _page(visit, rotated=await visit.api.rotate_gateway_key(_key(visit), rotation))
    except InvalidInput as error:
        return await _page(visit, edited=_key(visit), problem=_problem(error))
    except ApiProblem as error:
        return await _refused(visit, error, {})


async def explain(visit: Visit) -> Response:
    """Allow or forbid requests with this gateway key to ask that their routing decisions are kept."""
    asked = GatewayKeyChange(explain=bool((await visit.form()).get("explain")))
    try:
        await visit.api.change_gateway_key(_key(visit), asked)
    except ApiProblem as error:
        return await _refused(visit, error, {})
    return visit.back_to("/keys")


def _key(visit: Visit) -> str:
    return str(visit.request.path_params["key"])


async def _typed(visit: Visit) -> dict[str, str]:
    form = await visit.form()
    return {name: str(form.get(name, "")).strip() for name in FIELDS}


async def _former(visit: Visit) -> dict[str, str]:
    """Return the values with which the submitted form was opened; values that the form does not have are left out."""
    form = await visit.form()
    return {name: str(form[f"{FORMER}{name}"]) for name in FIELDS if f"{FORMER}{name}" in form}


def _request(typed: dict[str, str]) -> GatewayKeyRequest:
    """Return the request for a new gateway key, from the typed values. Raises InvalidInput."""
    return GatewayKeyRequest(
        name=typed["name"],
        pools=_words(typed["pools"]),
        models=_words(typed["models"]),
        days=_whole("days", typed["days"]),
        requests_per_minute=_whole("requests_per_minute", typed["requests_per_minute"]),
        tokens_per_minute=_whole("tokens_per_minute", typed["tokens_per_minute"]),
        priority_class=typed["priority_class"] or None,
        explain=bool(typed["explain"]),
        budget_day=ungrouped(typed["budget_day"]) or None,
        budget_month=ungrouped(typed["budget_month"]) or None,
        budget_currency=typed["budget_currency"].upper() or None,
    )


def _change(typed: dict[str, str], former: dict[str, str]) -> GatewayKeyChange:
    """Return the change of a gateway key that the form describes: the fields that differ from `former`. An empty field
    removes the limit; if the number of days is empty, the expiry is unchanged. Raises InvalidInput.
    """
    asked = _request(typed)
    whole = GatewayKeyChange(
        name=asked.name,
        pools=asked.pools,
        models=asked.models,
        days=asked.days,
        requests_per_minute=asked.requests_per_minute or 0,
        tokens_per_minute=asked.tokens_per_minute or 0,
        priority_class=asked.priority_class or "",
        explain=asked.explain,
        budget_day=asked.budget_day or "",
        budget_month=asked.budget_month or "",
        budget_currency=asked.budget_currency or "",
    )
    return replace(whole, **dict.fromkeys(name for name, value in former.items() if typed[name] == value))


def _whole(name: str, text: str) -> int | None:
    number = whole_number(ungrouped(text)) if text else None
    if text and number is None:
        raise InvalidInput(name, text[:50], "write a whole number without a sign, or nothing")
    return number


def _problem(error: InvalidInput) -> Problem:
    return Problem(type="invalid-input", title="Nothing was changed", status=422, detail=str(error), field=error.field)


async def revoke(visit: Visit) -> Response:
    try:
        await visit.api.revoke_gateway_key(visit.request.path_params["key"])
    except ApiProblem as error:
        return await _refused(visit, error, {})
    return visit.back_to("/keys")


def _present(key: GatewayKey) -> dict[str, str]:
    """Return the present values of a gateway key for its form. The field for the expiry is empty, because it takes a
    number of days from now.
    """
    texts = {name: _shown(name, getattr(key, name, None)) for name in FIELDS}
    listed = {"pools": ", ".join(key.pools), "models": ", ".join(key.models), "days": "", "explain": "1" if key.explain else ""}
    return {**texts, **listed}


def _shown(name: str, value: object) -> str:
    """Format a field's value for its input, with thousands separated by commas."""
    if value is None:
        return ""
    if name in ("budget_day", "budget_month"):
        return f"{Decimal(str(value)):,f}"
    return formats.count(value) if isinstance(value, int) else str(value)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


async def _refused(
    visit: Visit, error: ApiProblem, typed: dict[str, str], edited: str | None = None, former: dict[str, str] | None = None
) -> Response:
    if error.problem.status not in REFUSALS:
        raise error
    return await _page(visit, typed=typed, edited=edited, former=former, problem=error.problem)


async def _page(
    visit: Visit,
    *,
    created: GatewayKey | None = None,
    rotated: GatewayKey | None = None,
    typed: dict[str, str] | None = None,
    edited: str | None = None,
    former: dict[str, str] | None = None,
    problem: Problem | None = None,
) -> Response:
    shell = await visit.shell("Gateway keys", "keys", crumbs=(Crumb(words="Gateway keys"),))
    listing = await visit.api.gateway_keys(cursor=visit.param("cursor"), limit=PAGE_ROWS)
    edited = edited or visit.param("edit")
    if problem is not None:
        problem = replace(problem, detail=formats.labelled(problem.detail, problem.field, LABELS))
    present = {key.id: _present(key) for key in listing.items}
    opened = present | ({edited: former} if edited is not None and former else {})
    if edited is not None and typed and problem:
        present[edited] = typed
    context = KeysPage(
        shell=shell,
        listing=listing,
        created=created or rotated,
        rotated=rotated is not None,
        typed=typed if typed and edited is None else FIELDS,
        present=present,
        former=opened,
        edited=edited,
        problem=problem,
    )
    return visit.page(context, status=problem.status if problem else 200)


ROUTES = Routes(
    # What was made is shown at the address of its form, once; a reload shows the list.
    pages=dict.fromkeys(("/keys", "/keys/new", "/keys/{key}", "/keys/{key}/rotate", "/keys/{key}/explain", "/keys/{key}/revoke"), show),
    writes={
        "/keys/new": create,
        "/keys/{key}": change,
        "/keys/{key}/rotate": rotate,
        "/keys/{key}/explain": explain,
        "/keys/{key}/revoke": revoke,
    },
    exports={"/keys": Export(name="gateway-keys")},
)
