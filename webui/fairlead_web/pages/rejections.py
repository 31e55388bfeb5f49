"""`/rejections`: the refused requests, grouped by cause, with the remedies."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.rejections import RejectionReason
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_web.drawing.charts import Sparkline, sparkline
from fairlead_web.drawing.range_figures import by_cause
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionsPage(Context):
    template: ClassVar[str] = "pages/rejections.html"
    shell: Shell
    report: RejectionReport
    causes_counted: dict[str, str]
    """The number of refused requests by cause over the range, as text. Empty if the page shows only one priority class,
    because the chart shows all classes.
    """
    groups: list[tuple[RejectionGroup, str, Sparkline]]
    fixed: frozenset[str]
    """Names of pools whose number of instances cannot be changed by a plan."""
    causes: dict[str, str]
    """The text of each cause."""


FILTERS = ("pool", "priority_class")


async def index(visit: Visit) -> Response:
    filters = visit.filters(*FILTERS, ranged=True) | visit.range.counted
    report = await visit.api.rejections({name: value for name, value in filters.items() if name not in {"cursor", "limit"}})
    shell = await visit.shell(
        "Rejections", "rejections", crumbs=(Crumb(words="Rejections"),), pool=visit.param("pool"), ranged=True, live="rejections"
    )
    groups = [
        (
            group,
            group.reason.facts.title,
            sparkline(group.sparkline, f"{group.reason.facts.title}, over the range: {group.count} in total", 160, 32),
        )
        for group in sorted(report.groups, key=lambda group: -group.count)
    ]
    fixed = frozenset(f"{one.namespace}/{one.name}" for one in shell.pools if one.runs_already and one.scale_target is None)
    return visit.page(
        RejectionsPage(
            shell=shell,
            report=report,
            causes_counted={} if visit.param("priority_class") else by_cause(report),
            groups=groups,
            fixed=fixed,
            causes={one.value: one.facts.title for one in RejectionReason},
        )
    )


PATHS = ("/rejections", f"{POOL}/rejections")
ROUTES = Routes(pages=dict.fromkeys(PATHS, index), exports=dict.fromkeys(PATHS, Export(name="rejections", filters=FILTERS, ranged=True)))
