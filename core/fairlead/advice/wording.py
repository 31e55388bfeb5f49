"""Numbers and nouns in the sentences of findings."""

from collections.abc import Sequence

from fairlead.amounts import amount
from fairlead.instances import Role
from fairlead.percentages import percentage


def rate(value: float) -> str:
    """Return the words for a number of requests per second. The rate has one decimal, or two below 1/s; if two decimals
    would show zero, the rate is per hour. 6.63 → `6.6 requests/s`, 0.44 → `0.44 requests/s`, 0.0008 → `3 requests/h`.
    """
    if 0 < value < 0.005:
        return amount(max(1, round(value * 3600)), "request") + "/h"
    return f"{value:.1f} requests/s" if value >= 1 else f"{value:.2f} requests/s"


def share(value: float) -> str:
    """Return a share as a percentage: 0.834 → `83.4 %`."""
    return percentage(value)


def percent(value: float) -> str:
    """Return a percentile without needless decimals: 90.0 → `90 %`."""
    return f"{value:g} %"


def seconds(value: float) -> str:
    """Return a time span: 0.0421 → `42 ms`, 4.217 → `4.22 s`, 75 → `75 s`, 7500 → `2 h 5 min`."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 9.995:
        return f"{value:.2f}".rstrip("0").rstrip(".") + " s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def not_yet(bad: int, had: int, needed: int) -> str:
    """Return a clause that says why a drain is not offered yet: fewer than `needed` minutes were observed, or only
    `bad` of the `had` observed minutes were bad.
    """
    if had < needed:
        return f"; only {amount(had, 'minute', 'are')} on record, and a drain is offered after {needed}"
    return f"; this was so in {bad} of the last {amount(had, 'minute')}, too few to drain it"


def of_role(role: Role, number: int, noun: str = "instance") -> str:
    """Return the number of a role's instances with a noun: `4 instances`, `1 prefill instance`."""
    return amount(number, noun if role is Role.BOTH else f"{role.value} {noun}")


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first `most` names, and the number of names that are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
