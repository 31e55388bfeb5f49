"""`/pools/{namespace}/{name}/differences`: how the requests in a region of the heatmap differ from the pool's other
requests. The heatmap shows the same text next to its cells.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.resources.load_explanations import Difference, Differences
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path, session_path

ABOUT = {
    "session": "Session",
    "class": "Class",
    "reason": "Routing reason",
    "prompt": "Prompt length",
    "hits": "Prefix hits",
    "node": "Node",
    "revision": "Revision of the spec",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """A difference between a region's requests and all others, as text. `path` is the page of the value that differs,
    for example of a session; empty if the value has no page.
    """

    about: str
    value: str
    path: str
    more: bool
    found: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferencesPage(Context):
    template: ClassVar[str] = "pages/differences.html"
    shell: Shell
    instances: str
    start: str
    end: str
    found: Differences | None
    rows: list[DifferenceRow]
    problem: str


async def show(visit: Visit) -> Response:
    """Show the differences. The address names the region; its requests are compared with all other requests of the
    page's range.
    """
    key, instances = visit.pool_key(), visit.param("instances") or ""
    start, end = visit.param("region_from") or visit.range.start_text, visit.param("region_to") or visit.range.end_text
    found, problem = None, ""
    if instances:
        try:
            rest = {"rest_start": visit.range.start_text, "rest_end": visit.range.end_text}
            found = await visit.api.differences(key, instances, start=start, end=end, **rest)
        except ApiProblem as error:
            if error.problem.status != 422:
                raise
            problem = formats.told(error.problem.detail, error.problem.remedy)
    crumbs = crumbs_below(str(key), Crumb(words="Heatmap", path=f"{pool_path(str(key))}/heatmap"), Crumb(words="What differs"))
    shell = await visit.shell(f"What differs in {key}", "pools", crumbs=crumbs, pool=str(key), tab="heatmap", ranged=True)
    rows = [_row(str(key), one) for one in found.found] if found else []
    return visit.page(
        DifferencesPage(shell=shell, instances=instances, start=start, end=end, found=found, rows=rows, problem=problem),
        status=422 if problem else 200,
    )


def _row(pool: str, one: Difference) -> DifferenceRow:
    path = session_path(pool, one.value) if one.about == "session" and one.value != "none" else ""
    value = formats.words(one.value) if one.about == "reason" else one.value
    return DifferenceRow(
        about=ABOUT.get(one.about, one.about), value=value, path=path, more=one.inside_share > one.outside_share, found=one
    )


ROUTES = Routes(pages={f"{POOL}/differences": show})
