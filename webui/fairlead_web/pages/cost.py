"""`/cost`: the cost of instances over a range of time, divided among the clients that used them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.costs import CostGroup, CostLine, CostReport, CostStep, CostTotal
from fairlead_web.drawing.charts import Bar, even_ticks
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Export, Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

FILTERS = ("pool", "by")
DEFAULT_START = "now-24h"

WORDS = {
    CostGroup.POOL: "Pool",
    CostGroup.ROLE: "Role",
    CostGroup.KEY: "Key",
    CostGroup.CLASS: "Priority class",
    CostGroup.SESSION: "Session",
}


PARTS = ("used", "unattributed", "idle")
"""Parts of a bar in the cost picture, from bottom to top."""
SERIES = {"used": 1, "unattributed": 5, "idle": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPicture:
    """A picture of costs: bars in a `width` x `height` box. `top` is the amount of the highest bar, as text."""

    currency: str
    width: int
    height: int
    bars: tuple[Bar, ...]
    ticks: tuple[str, ...]
    top: str


def cost_picture(
    steps: Sequence[CostStep], currency: str, start: datetime, end: datetime, step_seconds: int, width: int = 1080, height: int = 96
) -> CostPicture:
    """Draw the cost steps of one currency over [start, end)."""
    of_currency = [step for step in steps if step.currency == currency]
    top = max((_whole(step) for step in of_currency), default=Decimal(0))
    scale, bars = width / max(1.0, (end - start).total_seconds()), list[Bar]()
    for step in of_currency:
        x, y = max(0.0, (step.at - start).total_seconds() * scale), float(height)
        wide = max(1.0, min(step_seconds * scale - 1, width - x))
        for part in PARTS:
            amount = Decimal(getattr(step, part))
            tall = float(amount / (top or 1)) * (height - 4)
            y -= tall
            if amount:
                label = f"{formats.clock(step.at)} UTC: {formats.money(getattr(step, part))} {currency} {part}"
                bars.append(
                    Bar(x=round(x, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1), series=SERIES[part], label=label)
                )
    ticks = even_ticks(start, end)
    return CostPicture(currency=currency, width=width, height=height, bars=tuple(bars), ticks=ticks, top=formats.money(f"{top:f}"))


def _whole(step: CostStep) -> Decimal:
    return Decimal(step.used) + Decimal(step.idle) + Decimal(step.unattributed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """A line of the cost report with its amounts as shown. `name` is empty in the line of the requests that have no
    name in this division: if costs are divided by key, these are the requests without a key.
    """

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
    """The ways in which costs can be divided: the text of each, by its name in URLs."""
    totals: list[tuple[str, str, str, str, str]]
    """One row per currency: the currency, the amount, its used part, its idle part, and the instance hours as text."""
    rows: list[CostRow]
    pictures: list[CostPicture]
    parts_: list[tuple[str, int]]
    """The parts of a bar, each with its colour class."""
    savings: list[tuple[str, str, str]]
    """Sources of savings, each with its amount and an explanation of how the amount is estimated."""


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
        totals=[
            (one.currency, formats.money(one.amount), formats.money(one.used), formats.money(one.idle), _hours(one))
            for one in report.totals
        ],
        rows=[_row(one) for one in report.lines],
        pictures=[cost_picture(report.steps, one.currency, report.start, report.end, report.step_seconds) for one in report.totals],
        parts_=[(part, SERIES[part]) for part in PARTS],
        savings=[(one.by.value, f"{formats.money(one.amount)} {one.currency}", one.how) for one in report.savings],
    )
    return visit.page(page)


def _hours(total: CostTotal) -> str:
    measured = f", {total.measured_hours:.2f} of them at prices of OpenCost" if total.measured_hours else ""
    return f"{total.instance_hours:.2f} instance hours at their prices{measured}"


def _row(line: CostLine) -> CostRow:
    name = line.label or line.name
    return CostRow(
        line=line, name=name, amount=formats.money(line.amount), prefill=formats.money(line.prefill), decode=formats.money(line.decode)
    )


ROUTES = Routes(pages={"/cost": index}, exports={"/cost": Export(name="cost", filters=FILTERS, ranged=True)})
