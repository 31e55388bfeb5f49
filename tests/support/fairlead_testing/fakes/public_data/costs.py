"""A made-up cost report, divided among groups by the product's own code."""

from dataclasses import replace
from datetime import datetime, timedelta

from fairlead.costs.allocation import Life, Use, Work, allocate
from fairlead.costs.money import HOUR_MICROSECONDS, MICRO
from fairlead.costs.prices import Price
from fairlead.instances import Role
from fairlead_api.costs.reporting import OTHERS, Sums
from fairlead_api.costs.reporting import report as report_of
from fairlead_client.resources.costs import CostGroup, CostReport
from fairlead_testing.fakes.public_data.loads import HOSTILE

NAMES = {
    CostGroup.POOL: ("default/chat", "research/code"),
    CostGroup.KEY: ("k-0", "k-1", ""),
    CostGroup.CLASS: ("default", "batch"),
    CostGroup.SESSION: ("default/chat/user-1", f"default/chat/{HOSTILE}", OTHERS),
}


def report(by: CostGroup, start: datetime, end: datetime) -> CostReport:
    """Return the costs of three instances of the role both that are busy for a third of the range.

    The price of the first hour is measured, that of later hours declared.
    """
    start = start.replace(minute=0, second=0, microsecond=0)
    first, hours = int(start.timestamp()) // 3600, max(1, int((end - start) / timedelta(hours=1)))
    lives = [Life(pod=pod, role=Role.BOTH, began=first * HOUR_MICROSECONDS) for pod in "abc"]
    declared = Price(role=Role.BOTH, since=(first + 1) * HOUR_MICROSECONDS, micros_per_hour=2_500_000, currency="EUR")
    prices = [replace(declared, since=0, measured=True), declared]
    work = {
        (Role.BOTH, first + hour): Work(busy=HOUR_MICROSECONDS * (1 + hour % 2), prefilling=HOUR_MICROSECONDS // 3) for hour in range(hours)
    }
    names = NAMES.get(by, ("",))
    uses = {
        first + hour: [
            Use(
                group=name, requests=40 + place, prefill_tokens=90_000 // (place + 1), hit_tokens=150_000, output_tokens=9_000 + 100 * place
            )
            for place, name in enumerate(names)
        ]
        for hour in range(hours)
    }
    found = allocate(lives, prices, work, uses, first * HOUR_MICROSECONDS, (first + hours) * HOUR_MICROSECONDS)
    sums = Sums(unpriced=HOUR_MICROSECONDS // 2)
    (sums.add_roles if by is CostGroup.ROLE else sums.add)(found)
    sums.scheduled["EUR"] += 7 * MICRO * HOUR_MICROSECONDS
    return report_of(sums, by, start, start + timedelta(hours=hours), {"k-0": "team a", "k-1": HOSTILE})
