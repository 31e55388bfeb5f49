"""`…/ring`: the shares of the hash ring's keys that a pool's instances have, and the effect of a hypothetical change of
the instances. A form plans another weight for an instance.

The URL contains the hypothetical change.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.rings import KeyMove, Ring, RingInstance
from fairlead_web.frame.heatmap_layers import whole
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

SHOWN_MOVES = 12
SHOWN_ROWS = 50
UNEVEN = 0.25
"""Minimum imbalance at which the page calls the ring uneven; with 160 anchors per instance it usually stays below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """An instance with bars for its share of the keys, now and after the change. Lengths are in % of the widest share
    on the page; `fair` is the length of a share in proportion to the instance's weight.
    """

    instance: RingInstance
    bar: float
    after: float | None
    fair: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RingPage(Context):
    """The page of a hash ring. `add`, `remove` and `anchors` are the hypothetical change as typed; `problem` is why the
    API could not compute its effect. `shown` are the rows on this page. `fuller` is the number of the first row on the
    page with the larger shares, and `emptier` on the page with the smaller shares; None if there is no such page.
    """

    template: ClassVar[str] = "pages/ring.html"
    shell: Shell
    pool: str
    ring: Ring
    rows: list[ShareRow]
    shown: list[ShareRow]
    fuller: int | None
    emptier: int | None
    uneven: bool
    moves: list[KeyMove]
    add: str
    remove: str
    anchors: str
    problem: str | None
    instance: str
    weight: str
    """The new weight for an instance, as typed."""
    refusal: str | None
    """The reason why the plan for another weight could not be made."""


async def show(visit: Visit) -> Response:
    return await _page(visit, visit.param("instance") or "", "", None)


async def plan(visit: Visit) -> Response:
    """Request a plan that gives an instance another weight, and redirect to it. A refusal is shown beside the form."""
    form = await visit.form()
    instance, weight = (str(form.get(name, "")).strip() for name in ("instance", "weight"))
    try:
        asked = PlanRequest(kind=PlanKind.WEIGHT, instance=instance, fields={"weight": _weight(weight)})
        made = await visit.api.create_plan(visit.pool_key(), asked)
    except InvalidInput as error:
        return await _page(visit, instance, weight, formats.told(error.told, error.remedy))
    except ApiProblem as error:
        if error.problem.status not in {400, 404, 409, 422}:
            raise
        return await _page(visit, instance, weight, formats.told(error.problem.detail, error.problem.remedy))
    return visit.redirect(f"/plans/{made.id}")


async def _page(visit: Visit, instance: str, weight: str, refusal: str | None) -> Response:
    key = visit.pool_key()
    add, remove, anchors = (visit.param(name) or "" for name in ("add", "remove", "anchors"))
    problem = None
    try:
        ring = await visit.api.ring(key, add=_whole("add", add), remove=[remove] if remove else [], anchors=_whole("anchors", anchors))
    except (ApiProblem, ValueError) as error:
        if isinstance(error, ApiProblem) and error.problem.status != 422:
            raise
        problem = str(error) if isinstance(error, ValueError) else formats.told(error.problem.detail, error.problem.remedy)
        ring = await visit.api.ring(key)
    rows, first = share_rows(ring), max(1, whole(visit.param("row")))
    shell = await visit.shell(
        f"Ring of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Ring")), pool=str(key), tab="ring", live="pools"
    )
    return visit.page(
        RingPage(
            shell=shell,
            pool=str(key),
            ring=ring,
            rows=rows,
            shown=rows[first - 1 : first - 1 + SHOWN_ROWS],
            fuller=max(1, first - SHOWN_ROWS) if first > 1 else None,
            emptier=first + SHOWN_ROWS if first + SHOWN_ROWS <= len(rows) else None,
            uneven=ring.imbalance is not None and ring.imbalance >= UNEVEN,
            moves=ring.change.moves[:SHOWN_MOVES] if ring.change else [],
            add=add,
            remove=remove,
            anchors=anchors,
            problem=problem,
            instance=instance,
            weight=weight or next((f"{one.weight:g}" for one in ring.instances if one.id == instance), ""),
            refusal=refusal,
        ),
        status=422 if problem or refusal else 200,
    )


def share_rows(ring: Ring) -> list[ShareRow]:
    """Return the rows of the instances, ordered by share. Instances that are not on the ring are last."""
    widest = max((max(one.key_share, one.share_after or 0.0, one.fair_share) for one in ring.instances), default=0.0) or 1.0
    rows = [
        ShareRow(
            instance=one,
            bar=round(one.key_share / widest * 100, 2),
            after=None if one.share_after is None else round(one.share_after / widest * 100, 2),
            fair=round(one.fair_share / widest * 100, 2),
        )
        for one in ring.instances
    ]
    return sorted(rows, key=lambda row: (-max(row.instance.key_share, row.instance.share_after or 0.0), row.instance.id))


def _weight(text: str) -> float | None:
    """Return the typed weight; None, for empty text, restores the weight 1."""
    try:
        return float(text) if text else None
    except ValueError as error:
        raise InvalidInput("weight", text, "write a number such as 0.5") from error


def _whole(name: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{name}: {text!r} is not a whole number; write one such as 2.")
    return int(text)


ROUTES = Routes(
    # A form that was refused is shown at its own address; a reload and the live parts ask for that one.
    pages={f"{POOL}/ring": show, f"{POOL}/ring/plans": show},
    writes={f"{POOL}/ring/plans": plan},
    exports={f"{POOL}/ring": Export(name="ring", filters=("add", "remove", "anchors"), of_pool=True)},
)
