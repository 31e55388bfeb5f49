"""`…/{namespace}/{name}/test`: sends one test request to the pool, and shows the response, its headers, the trace and
the routing decision.
"""

import asyncio
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
"""The form's fields whose typed values are shown again. The gateway key is left out, because it is never shown
again.
"""
LABELS = {"prompt": "Prompt", "max_tokens": "Tokens of the answer", "model": "Model", "session": "Session", "key": "Gateway key"}
"""The label of each field of the form. Messages name a refused field by its label."""

KEPT = "x-fairlead-decision-kept"
LOOKS, LOOK_SECONDS = 8, 0.25
"""Maximum number of attempts to read a kept decision, and the pause between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage(Context):
    """The page with the form, and the response to the test request. `decision` is None if the routing decision is not
    kept, or not reported yet.
    """

    template: ClassVar[str] = "pages/trial.html"
    shell: Shell
    typed: dict[str, str]
    problem: str | None
    at: str
    """The form's field that the problem is about; empty if it is about no field."""
    answer: TrialAnswer | None
    decision: RoutingDecision | None
    kept: bool
    """Whether the router says that it keeps the decision."""


async def show(visit: Visit) -> Response:
    return await _page(visit, {})


async def send(visit: Visit) -> Response:
    """Send the test request. A refusal is shown at the field that it concerns, and everything typed, except the key, is
    shown again.
    """
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
    """Return the test request that the form describes. Raises InvalidInput."""
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
        problem=None if problem is None else formats.told(formats.labelled(problem.detail, problem.field, LABELS), problem.remedy),
        at=(problem.field or "") if problem else "",
        answer=answer,
        decision=decision,
        kept=answer is not None and is_kept(answer),
    )
    return visit.page(page, status=problem.status if problem else 200)


def is_kept(answer: TrialAnswer) -> bool:
    """Return whether the response to the test request says that the router keeps its routing decision."""
    return (KEPT, "true") in {(name, value) for name, value in answer.headers}


async def _decision(visit: Visit, answer: TrialAnswer | None) -> RoutingDecision | None:
    """Return the routing decision of the test request, or None. A decision that a router keeps is awaited, because the
    router reports it after its response.
    """
    if answer is None or answer.decision is None:
        return None
    for look in range(LOOKS if is_kept(answer) else 1):
        await asyncio.sleep(LOOK_SECONDS if look else 0)
        try:
            return await visit.api.decision(answer.decision)
        except ApiProblem as error:
            if error.problem.status != 404:
                return None
    return None


ROUTES = Routes(pages={f"{POOL}/test": show}, writes={f"{POOL}/test": send})
