"""`/notices`: webhooks, which admins make, test and delete, and the notices for these webhooks."""

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.webhooks import SUBSCRIBED, NoticeForm, NoticeKind, Webhook, WebhookNotice, WebhookRequest
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import PAGE_ROWS, Visit

MOST_WEBHOOKS = 100
"""Maximum number of webhooks that the page reads, which is also the API's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticesPage(Context):
    """The page of webhooks and their notices: the notices for all webhooks, or only for `webhook`.

    `created` is set only in the response that shows a new webhook's secret; `typed` has the values of a refused form,
    by field. `names` has the names of webhooks by id.
    """

    template: ClassVar[str] = "pages/notices.html"
    shell: Shell
    webhooks: list[Webhook]
    names: dict[str, str]
    listing: Listing[WebhookNotice]
    webhook: str | None
    created: Webhook | None
    typed: dict[str, str]
    kinds: frozenset[str]
    problem: Problem | None
    known_kinds: tuple[NoticeKind, ...] = SUBSCRIBED
    forms: tuple[NoticeForm, ...] = tuple(NoticeForm)


FIELDS = dict.fromkeys(("name", "url", "pools"), "") | {"form": NoticeForm.JSON.value}
"""The text fields of the form for a webhook, with their initial values."""
REFUSALS = frozenset({400, 403, 404, 409, 422})


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def create(visit: Visit) -> Response:
    """Make a webhook. Only this response shows its secret. The address is never shown again, even if the form is
    refused.
    """
    form = await visit.form()
    typed = {name: str(form.get(name, "")).strip() for name in FIELDS}
    kinds = frozenset(one for one in SUBSCRIBED if form.get(f"kind-{one}"))
    request = WebhookRequest(
        name=typed["name"],
        url=typed["url"],
        form=NoticeForm.SLACK if typed["form"] == NoticeForm.SLACK else NoticeForm.JSON,
        kinds=tuple(sorted(kinds)),
        pools=tuple(typed["pools"].replace(",", " ").split()),
    )
    try:
        return await _page(visit, created=await visit.api.create_webhook(request))
    except ApiProblem as error:
        return await _refused(visit, error, typed | {"url": ""}, kinds)


async def test(visit: Visit) -> Response:
    """Send a test notice to a webhook, and show the notices of that webhook."""
    webhook = visit.request.path_params["webhook"]
    try:
        await visit.api.test_webhook(webhook)
    except ApiProblem as error:
        return await _refused(visit, error, FIELDS)
    return visit.redirect(f"/notices?webhook={quote(webhook, safe='')}")


async def delete(visit: Visit) -> Response:
    webhook = visit.request.path_params["webhook"]
    try:
        await visit.api.delete_webhook(webhook)
    except ApiProblem as error:
        return await _refused(visit, error, FIELDS)
    return visit.back_to("/notices", *(("webhook", "cursor") if visit.param("webhook") == webhook else ()))


async def _refused(visit: Visit, error: ApiProblem, typed: dict[str, str], kinds: frozenset[str] = frozenset()) -> Response:
    if error.problem.status not in REFUSALS:
        raise error
    return await _page(visit, typed=typed, kinds=kinds, problem=error.problem)


async def _page(
    visit: Visit,
    *,
    created: Webhook | None = None,
    typed: dict[str, str] | None = None,
    kinds: frozenset[str] = frozenset(),
    problem: Problem | None = None,
) -> Response:
    shell = await visit.shell("Notices", "notices", crumbs=(Crumb(words="Notices"),))
    chosen = visit.param("webhook")
    found = await visit.api.webhooks(limit=MOST_WEBHOOKS)
    listing = await visit.api.notices({"webhook": chosen, "cursor": visit.param("cursor"), "limit": PAGE_ROWS})
    context = NoticesPage(
        shell=shell,
        webhooks=found.items,
        names={one.id: one.name for one in found.items},
        listing=listing,
        webhook=chosen,
        created=created,
        typed=typed or FIELDS,
        kinds=kinds,
        problem=problem,
    )
    return visit.page(context, status=problem.status if problem else 200)


ROUTES = Routes(
    # What was made is shown at the address of its form, once; a reload shows the list.
    pages=dict.fromkeys(("/notices", "/notices/new", "/notices/{webhook}/test", "/notices/{webhook}/delete"), show),
    writes={"/notices/new": create, "/notices/{webhook}/test": test, "/notices/{webhook}/delete": delete},
    exports={"/notices": Export(name="notices", filters=("webhook",))},
)
