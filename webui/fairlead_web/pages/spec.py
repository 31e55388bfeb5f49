"""`…/spec`: the pool's spec as YAML, its revisions, the difference of any two, and the way back to one."""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plans import PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolRevision
from fairlead_client.resources.problems import Problem
from fairlead_web import formats
from fairlead_web.differences import DiffLine, yaml_diff
from fairlead_web.rendering import Context
from fairlead_web.routes import POOL, Export, Routes
from fairlead_web.shells import Crumb, Shell, crumbs_below
from fairlead_web.visits import Visit
from fairlead_web.yaml_text import yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPage(Context):
    template: ClassVar[str] = "pages/spec.html"
    shell: Shell
    revisions: list[PoolRevision]
    listing: Listing[PoolRevision]
    current: str
    before: PoolRevision | None
    after: PoolRevision | None
    diff: list[DiffLine]
    refusal: str | None
    """Why going back to a revision could not be planned."""


async def show(visit: Visit) -> Response:
    return await _page(visit, None)


async def plan(visit: Visit) -> Response:
    """Asks for a plan that goes back to a revision, and redirects to it."""
    number = str((await visit.form()).get("revision", ""))
    if not (number.isascii() and number.isdigit()):
        raise HTTPException(404)
    try:
        made = await visit.api.create_plan(visit.pool_key(), PlanRequest(kind=PlanKind.REVERT, revision=int(number)))
    except ApiProblem as error:
        if error.problem.status not in {400, 409, 422}:
            raise
        return await _page(visit, error.problem)
    return visit.redirect(f"/plans/{made.id}")


async def _page(visit: Visit, problem: Problem | None) -> Response:
    key = visit.pool_key()
    listing, detail = await asyncio.gather(
        visit.api.revisions(key, cursor=visit.param("cursor"), limit=100), visit.api.pool(key, instances=False)
    )
    newest_first = sorted(listing.items, key=lambda revision: -revision.number)
    after = _revision(newest_first, visit.param("b")) or (newest_first[0] if newest_first else None)
    before = _revision(newest_first, visit.param("a"))
    if before is None and after is not None:
        before = next((revision for revision in newest_first if revision.number < after.number), None)
    shell = await visit.shell(f"Spec of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Spec")), pool=str(key), tab="spec")
    return visit.page(
        SpecPage(
            shell=shell,
            revisions=newest_first,
            listing=listing,
            current=yaml_text(detail.spec),
            before=before,
            after=after,
            diff=yaml_diff(before.spec, after.spec) if before and after else [],
            refusal=formats.told(problem.detail, problem.remedy) if problem else None,
        ),
        status=problem.status if problem else 200,
    )


def _revision(revisions: list[PoolRevision], number: str | None) -> PoolRevision | None:
    return next((revision for revision in revisions if str(revision.number) == number), None)


ROUTES = Routes(
    # A form that was refused is shown at its own address; a reload asks for that one.
    pages={f"{POOL}/spec": show, f"{POOL}/spec/plans": show},
    writes={f"{POOL}/spec/plans": plan},
    exports={f"{POOL}/spec": Export(name="revisions", of_pool=True)},
)
