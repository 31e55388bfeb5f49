"""`…/comments`: comments of people on a range of a pool's time, or on one of its plans, with the forms that add and
delete them.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.comments import Comment, CommentRequest
from fairlead_client.resources.problems import Problem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text.addresses import pool_path, with_query

REFUSALS = frozenset({400, 403, 404, 409, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentsPage(Context):
    """The page of comments. `plan` is the plan whose comments are shown; if it is None, comments on the time range are
    shown. `deletable` has the ids of the comments that the reader may delete; `typed` is the text of a form that was
    refused.
    """

    template: ClassVar[str] = "pages/comments.html"
    shell: Shell
    comments: list[Comment]
    complete: bool
    deletable: frozenset[str]
    plan: str | None
    typed: str
    problem: Problem | None


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def write(visit: Visit) -> Response:
    """Add the comment in the form, or delete the comment that the form names."""
    form = await visit.form()
    text, gone, plan = str(form.get("text", "")), str(form.get("delete", "")), visit.param("plan")
    asked = visit.range.asked
    span = {} if plan else {"start": asked["from"], "end": asked["to"]}
    try:
        if gone:
            await visit.api.delete_comment(gone)
        else:
            await visit.api.add_comment(visit.pool_key(), CommentRequest(text=text, plan=plan, **span))
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _page(visit, error.problem, text)
    kept = {"plan": plan} if plan else {name: visit.param(name) for name in ("from", "to")}
    return visit.redirect(with_query(visit.here.path, {name: value for name, value in kept.items() if value}))


async def _page(visit: Visit, problem: Problem | None = None, typed: str = "") -> Response:
    visit = replace(visit, identity=visit.identity or await visit.api.whoami())
    pool, plan = str(visit.pool_key()), visit.param("plan")
    found = await visit.api.comments({"pool": pool, **({"plan": plan} if plan else visit.range.asked)})
    shell = await visit.shell(
        f"Comments on {pool}",
        "pools",
        crumbs=crumbs_below(pool, Crumb(words="Audit", path=f"{pool_path(pool)}/audit"), Crumb(words="Comments")),
        pool=pool,
        tab="audit",
        ranged=plan is None,
    )
    page = CommentsPage(
        shell=shell,
        comments=found.comments,
        complete=found.complete,
        deletable=frozenset(one.id for one in found.comments if _may_delete(visit, one)),
        plan=plan,
        typed=typed,
        problem=problem,
    )
    return visit.page(page, problem.status if problem else 200)


def _may_delete(visit: Visit, comment: Comment) -> bool:
    """Return whether the reader wrote the comment, or is an admin of its pool."""
    who = visit.identity
    return who is not None and (who.subject == comment.author or who.reaches(AccessRole.ADMIN, comment.pool.partition("/")[0]))


ROUTES = Routes(
    pages={f"{POOL}/comments": show},
    writes={f"{POOL}/comments": write},
    exports={f"{POOL}/comments": Export(name="comments", filters=("pool", "plan"), ranged=True)},
)
