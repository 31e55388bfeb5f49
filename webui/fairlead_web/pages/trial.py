"""`…/{namespace}/{name}/test`: sends one request to the pool, and shows the answer, its headers, the trace and the
decision.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.trials import Trial, TrialAnswer
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.typed_text import whole_number

FIELDS = ("prompt", "max_tokens", "session", "model")
"""The form's fields. The key is left out, because it is never shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage(Context):
    """The form, and the answer to the sent request. `decision` is None if it is not kept, or not reported yet."""

    template: ClassVar[str] = "pages/trial.html"
    shell: Shell
    typed: dict[str, str]
    problem: str | None
    at: str
    """The field that the problem is about; empty = no field."""
    answer: TrialAnswer | None
    decision: RoutingDecision | None


async def show(visit: Visit) -> Response:
    return await _page(visit, {})


async def send(visit: Visit) -> Response:
    """Send the request. A refusal is shown at its field, and everything typed except the key stays."""
    form = await visit.form()
    typed = {name: str(form.get(name, "")).strip() for name in FIELDS}
    try:
        answer = await visit.api.send_test_request(visit.pool_key(), _trial(typed, str(form.get("key", "")).strip()))
    except InvalidInput as error:
        return await _page(visit, typed, problem=Problem(type="", title="", status=422, detail=str(error), field=error.field))
    except ApiProblem as error:
        if error.problem.status not in {403, 409, 422, 503}:
            raise
        return await _page(visit, typed, problem=error.problem)
    return await _page(visit, typed, answer=answer)


def _trial(typed: dict[str, str], key: str) -> Trial:
    """Return the request that the form describes. Raises InvalidInput."""
    tokens = whole_number(typed["max_tokens"])
    if tokens is None:
        raise InvalidInput("max_tokens", typed["max_tokens"], "write a whole number such as 64")
    return Trial(prompt=typed["prompt"], max_tokens=tokens, model=typed["model"] or None, session=typed["session"] or None, key=key or None)


async def _page(visit: Visit, typed: dict[str, str], *, problem: Problem | None = None, answer: TrialAnswer | None = None) -> Response:
    pool = str(visit.pool_key())
    decision = await _decision(visit, answer)
    shell = await visit.shell(
        f"Test request to {pool}", "pools", crumbs=crumbs_below(pool, Crumb(words="Test request")), pool=pool, tab="overview"
    )
    page = TrialPage(
        shell=shell,
        typed=typed,
        problem=None if problem is None else formats.told(problem.detail, problem.remedy),
        at=(problem.field or "") if problem else "",
        answer=answer,
        decision=decision,
    )
    return visit.page(page, status=problem.status if problem else 200)


async def _decision(visit: Visit, answer: TrialAnswer | None) -> RoutingDecision | None:
    """Return the decision of an answer, if routers have reported it already."""
    if answer is None or answer.decision is None:
        return None
    try:
        return await visit.api.decision(answer.decision)
    except ApiProblem:
        return None


ROUTES = Routes(pages={f"{POOL}/test": show}, writes={f"{POOL}/test": send})
