"""`/advice` and `/pools/{namespace}/{name}/advice`: every finding with its harm, its evidence and its plan."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.advice import AdviceReport
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import PROPOSER, Plan, PlanState
from fairlead_process.json_documents import decode_json
from fairlead_web.drawing import findings
from fairlead_web.drawing.findings import Finding
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

_REQUEST = msgspec.json.Decoder(PlanRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvicePage(Context):
    template: ClassVar[str] = "pages/advice.html"
    shell: Shell
    report: AdviceReport
    items: list[Finding]
    proposals: list[Plan]
    """Plans that were proposed from advice and wait for a person, newest first."""
    refusal: str | None
    """The reason why the plan of a finding could not be made; None if no plan was refused."""


MOST_PROPOSALS = 50
"""Maximum number of proposals that are read; the newest proposals are read. The page shows the open ones."""


async def index(visit: Visit) -> Response:
    report = await visit.api.advice()
    shell = await visit.shell("Advice", "advice", crumbs=(Crumb(words="Advice"),), live="pools")
    return await _page(visit, shell, report, None)


async def of_pool(visit: Visit) -> Response:
    return await _of_pool(visit, None)


async def plan(visit: Visit) -> Response:
    """Request the plan of a finding from the API and redirect to it. A refusal is shown on the pool's advice page."""
    try:
        request = decode_json(str((await visit.form()).get("plan", "")).encode("utf-8", "replace"), _REQUEST)
    except msgspec.MsgspecError as error:
        raise HTTPException(400, f"plan: {error}; use a button of the page") from error
    try:
        made = await visit.api.create_plan(visit.pool_key(), request)
    except ApiProblem as error:
        if error.problem.status in {400, 409, 422}:
            return await _of_pool(visit, error)
        raise
    return visit.redirect(f"/plans/{made.id}")


async def _of_pool(visit: Visit, refused: ApiProblem | None) -> Response:
    key = visit.pool_key()
    report = await visit.api.advice(key)
    shell = await visit.shell(
        f"Advice of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Advice")), pool=str(key), tab="overview", live="pools"
    )
    return await _page(visit, shell, report, refused)


async def _page(visit: Visit, shell: Shell, report: AdviceReport, refused: ApiProblem | None) -> Response:
    query = {"created_by": PROPOSER, "pool": shell.pool, "limit": MOST_PROPOSALS}
    found = await visit.attempt("proposals", visit.api.plans(query))
    waiting = [one for one in found.items if one.proposal and one.state is PlanState.OPEN] if found else []
    told = None if refused is None else formats.told(refused.problem.detail, refused.problem.remedy)
    items = list(findings.of_advice(report.items))
    page = AdvicePage(shell=shell, report=report, items=items, proposals=waiting, refusal=told)
    return visit.page(page, status=refused.problem.status if refused else 200)


ROUTES = Routes(
    pages={"/advice": index, f"{POOL}/advice": of_pool},
    writes={f"{POOL}/advice": plan},
    exports={"/advice": Export(name="advice")},
)
