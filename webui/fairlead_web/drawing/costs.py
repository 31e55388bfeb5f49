"""The picture of a cost over time: a bar for each step, divided into what was used, unattributed and idle. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from fairlead_client.resources.costs import CostStep
from fairlead_web.drawing.charts import Bar, even_ticks
from fairlead_web.text import formats

PARTS = ("used", "unattributed", "idle")
"""From the bottom of a bar to its top."""
SERIES = {"used": 1, "unattributed": 5, "idle": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPicture:
    """Bars in a `width` x `height` box; `top` is the highest bar's amount, as text."""

    currency: str
    width: int
    height: int
    bars: tuple[Bar, ...]
    ticks: tuple[str, ...]
    top: str


def cost_picture(
    steps: Sequence[CostStep], currency: str, start: datetime, end: datetime, step_seconds: int, width: int = 1080, height: int = 96
) -> CostPicture:
    """The steps of one currency over [start, end)."""
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
                label = f"{formats.clock(step.at)} UTC: {money(getattr(step, part))} {currency} {part}"
                bars.append(
                    Bar(x=round(x, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1), series=SERIES[part], label=label)
                )
    ticks = even_ticks(start, end)
    return CostPicture(currency=currency, width=width, height=height, bars=tuple(bars), ticks=ticks, top=money(f"{top:f}"))


def _whole(step: CostStep) -> Decimal:
    return Decimal(step.used) + Decimal(step.idle) + Decimal(step.unattributed)


def money(amount: str) -> str:
    """An amount as people read it: two decimals, or as many as show that a small one is not zero."""
    value = Decimal(amount)
    if value and abs(value) < Decimal("0.01"):
        return f"{value.normalize():f}"
    return f"{value:,.2f}"
