"""`…/spec`: the pool's spec as YAML, its revisions, the difference between any two of them, and forms to roll back to a
revision.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolRevision
from fairlead_client.resources.problems import Problem
from fairlead_web.drawing.differences import Change, DiffLine, changes_of, yaml_diff
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.paging import MOST_PER_CALL
from fairlead_web.text.typed_text import whole_number
from fairlead_web.text.yaml_text import yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPage(Context):
    template: ClassVar[str] = "pages/spec.html"
    shell: Shell
    listing: Listing[PoolRevision]
    numbers: list[int]
    """The numbers of the revisions that can be chosen for a comparison: the revisions on the page, and the two
    revisions that are compared now.
    """
    changed: dict[int, list[Change]]
    """The fields that each revision changed, by the revision's number. Long values, such as lists and objects, are not
    repeated.
    """
    current: str
    before: PoolRevision | None
    after: PoolRevision | None
    diff: list[DiffLine]
    refusal: str | None
    """The reason why a rollback to a revision could not be planned."""


async def show(visit: Visit) -> Response:
    return await _page(visit, None)


async def plan(visit: Visit) -> Response:
    """Request a plan that rolls back to a revision, and redirect to the plan."""
    number = whole_number(str((await visit.form()).get("revision", "")))
    if number is None:
        raise HTTPException(404)
    try:
        made = await visit.api.create_plan(visit.pool_key(), PlanRequest(kind=PlanKind.REVERT, revision=number))
    except ApiProblem as error:
        if error.problem.status not in {400, 409, 422}:
            raise
        return await _page(visit, error.problem)
    return visit.redirect(f"/plans/{made.id}")


async def _page(visit: Visit, problem: Problem | None) -> Response:
    key = visit.pool_key()
    listing, detail = await asyncio.gather(
        visit.api.revisions(key, cursor=visit.param("cursor"), limit=MOST_PER_CALL), visit.api.pool(key, instances=False)
    )
    newest, wanted, from_ = next(iter(listing.items), None), visit.param("b"), visit.param("a")
    after = newest if wanted is None else await _revision(visit, listing, wanted)
    before = None
    if from_ is not None:
        before = await _revision(visit, listing, from_)
    elif after is not None:
        before = await _newest(visit, listing, after.number - 1)
    compared = {one.number for one in (before, after) if one}
    shell = await visit.shell(f"Spec of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Spec")), pool=str(key), tab="spec")
    return visit.page(
        SpecPage(
            shell=shell,
            listing=listing,
            numbers=sorted(compared | {one.number for one in listing.items}, reverse=True),
            changed={one.number: [_in_a_word(change) for change in changes_of(one.diff)] for one in listing.items},
            current=yaml_text(detail.spec),
            before=before,
            after=after,
            diff=yaml_diff(before.spec, after.spec) if before and after else [],
            refusal=formats.told(problem.detail, problem.remedy) if problem else None,
        ),
        status=problem.status if problem else 200,
    )


def _in_a_word(change: Change) -> Change:
    """Return the change in a short form, in which a value of several lines is an ellipsis and the path is relative to
    the spec.
    """
    before, after = ("…" if "\n" in value else value for value in (change.before, change.after))
    return Change(path=change.path.removeprefix("spec."), before=before, after=after)


async def _revision(visit: Visit, listing: Listing[PoolRevision], text: str) -> PoolRevision:
    """Return the revision whose number the URL contains (`text`)."""
    number = whole_number(text)
    found = None if number is None else await _newest(visit, listing, number)
    if found is None or found.number != number:
        raise HTTPException(404)
    return found


async def _newest(visit: Visit, listing: Listing[PoolRevision], most: int) -> PoolRevision | None:
    """Return the newest revision with a number of at most `most`, from the page's `listing` or from other pages of the
    list.
    """
    page = listing
    if page.items and page.items[0].number < most and visit.param("cursor"):
        page = await visit.api.revisions(visit.pool_key(), limit=MOST_PER_CALL)
    while True:
        found = next((one for one in page.items if one.number <= most), None)
        if found is not None or page.next_cursor is None:
            return found
        page = await visit.api.revisions(visit.pool_key(), cursor=page.next_cursor, limit=MOST_PER_CALL)


ROUTES = Routes(
    # A form that was refused is shown at its own address; a reload asks for that one.
    pages={f"{POOL}/spec": show, f"{POOL}/spec/plans": show},
    writes={f"{POOL}/spec/plans": plan},
    exports={f"{POOL}/spec": Export(name="revisions", of_pool=True)},
)
