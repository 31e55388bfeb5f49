"""`/cost`: what instances cost over a range, and who used them."""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.costs import CostGroup, CostLine, CostReport
from fairlead_web.drawing.costs import PARTS, SERIES, CostPicture, cost_picture, money
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit

FILTERS = ("pool", "by")
DEFAULT_START = "now-24h"

WORDS = {
    CostGroup.POOL: "Pool",
    CostGroup.ROLE: "Role",
    CostGroup.KEY: "Key",
    CostGroup.CLASS: "Priority class",
    CostGroup.SESSION: "Session",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """A line with its amounts as they are shown; `name` is empty where its requests have none."""

    line: CostLine
    name: str
    amount: str
    prefill: str
    decode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPage(Context):
    template: ClassVar[str] = "pages/cost.html"
    shell: Shell
    report: CostReport
    by: CostGroup
    groups: dict[str, str]
    """The words of each division, by its name in addresses."""
    totals: list[tuple[str, str, str, str, float]]
    """Currency, amount, used, idle and hours."""
    rows: list[CostRow]
    pictures: list[CostPicture]
    parts_: list[tuple[str, int]]
    """The parts of a bar with their colours."""
    savings: list[tuple[str, str, str]]
    """What saved, how much, and how that is estimated."""


async def index(visit: Visit) -> Response:
    visit = visit.over(DEFAULT_START)
    asked = visit.filters(*FILTERS, ranged=True)
    report = await visit.api.cost({name: value for name, value in asked.items() if name not in {"cursor", "limit"}})
    shell = await visit.shell("Cost", "cost", crumbs=(Crumb(words="Cost"),), pool=visit.param("pool"), ranged=True)
    page = CostPage(
        shell=shell,
        report=report,
        by=report.by,
        groups={one.value: words for one, words in WORDS.items()},
        totals=[(one.currency, money(one.amount), money(one.used), money(one.idle), one.instance_hours) for one in report.totals],
        rows=[_row(one) for one in report.lines],
        pictures=[cost_picture(report.steps, one.currency, report.start, report.end, report.step_seconds) for one in report.totals],
        parts_=[(part, SERIES[part]) for part in PARTS],
        savings=[(one.by.value, f"{money(one.amount)} {one.currency}", one.how) for one in report.savings],
    )
    return visit.page(page)


def _row(line: CostLine) -> CostRow:
    name = line.label or line.name
    return CostRow(line=line, name=name, amount=money(line.amount), prefill=money(line.prefill), decode=money(line.decode))


ROUTES = Routes(pages={"/cost": index}, exports={"/cost": Export(name="cost", filters=FILTERS, ranged=True)})
