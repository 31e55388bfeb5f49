"""`…/instances/{id}/explanation`: explains an instance's load over a range of time. The heatmap shows the same text
next to its cells.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.heatmaps import METRICS
from fairlead_client.resources.load_explanations import LoadExplanation
from fairlead_web.drawing.explained_figures import FigureRow, figure_rows
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.heatmaps.cells import METRIC_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadExplanationPage(Context):
    template: ClassVar[str] = "pages/load_explanation.html"
    shell: Shell
    pool: str
    found: LoadExplanation
    words: str
    figures: list[FigureRow]


async def show(visit: Visit) -> Response:
    key, name = visit.pool_key(), visit.request.path_params["instance"]
    pool, metric = str(key), visit.param("metric") or ""
    found = await visit.api.load_explanation(
        key,
        name,
        metric=metric if metric in METRICS else "pending_prefill_tokens",
        start=visit.range.start_text,
        end=visit.range.end_text,
        limit=_number(visit.param("limit")),
    )
    shell = await visit.shell(
        f"Why {name} had this load",
        "pools",
        crumbs=crumbs_below(pool, Crumb(words="Instances", path=f"/pools/{pool}/instances"), Crumb(words=name)),
        pool=pool,
        tab="heatmap",
        ranged=True,
    )
    return visit.page(
        LoadExplanationPage(shell=shell, pool=pool, found=found, words=METRIC_WORDS[found.metric], figures=figure_rows(found))
    )


def _number(text: str | None) -> float | None:
    """Return the limit that a heatmap's link carries; None if it is absent or not a positive number, so that the
    present limit is used.
    """
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 < found < inf else None


ROUTES = Routes(pages={f"{POOL}/instances/{{instance}}/explanation": show})
