"""Formats numbers and times as text.

Pure. `static/js/formats.js` has the same functions `count`, `share`, `seconds` and `latency` for cells that scripts
update; a browser test compares both.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from fairlead.percentages import percentage

NONE = "–"
SKEW_SECONDS = 10
"""Accepted clock difference between two machines, in seconds. A time that lies in the future by at most this much is
shown as `now`.
"""


def percentile(value: float) -> str:
    """Format a percentile without needless decimals: 90.0 → `90`, 99.9 → `99.9`."""
    return f"{value:g}"


def count(value: float | None) -> str:
    """Format a whole number with thousands separated: 12345 → `12,345`; None → an en dash."""
    return NONE if value is None else f"{math.floor(value + 0.5):,}"


def compact(value: float | None) -> str:
    """Format an amount with three digits: 950 → `950`, 12345 → `12.3 k`, 4200000 → `4.2 M`."""
    if value is None:
        return NONE
    if abs(value) < 999.5:
        return f"{round(value)}"
    if abs(value) < 999_950:
        return f"{value / 1000:.1f} k"
    return f"{value / 1_000_000:.1f} M"


def money(amount: str) -> str:
    """Format an amount of money with two decimals: 2500 → `2,500.00`. An amount below 0.01 is shown with all its
    decimals.
    """
    value = Decimal(amount)
    if value and abs(value) < Decimal("0.01"):
        return f"{value.normalize():f}"
    return f"{value:,.2f}"


def share(value: float | None) -> str:
    """Format a share 0-1 as a percentage (`fairlead.percentages`): 0.834 → `83.4 %`."""
    return NONE if value is None else percentage(value)


def seconds(value: float | None) -> str:
    """Format a latency in seconds: 0.0421 → `42 ms`, 4.217 → `4.22 s`, 75 → `75.0 s`."""
    if value is None:
        return NONE
    if abs(value) < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if abs(value) < 9.995 else f"{value:.1f} s"


def latency(value: float | None) -> str:
    """Format a latency from a histogram, in seconds, with two digits, because a histogram is no more precise: 0.0421 →
    `42 ms`, 4.217 → `4.2 s`.
    """
    if value is None:
        return NONE
    if value <= 0:
        return "0 ms"
    exact = Decimal(value)
    found = float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), ROUND_HALF_UP))
    if found < 1:
        return f"{found * 1000:.0f} ms" if found >= 0.01 else f"{found * 1000:.1f} ms"
    return f"{found:.1f} s" if found < 10 else f"{found:.0f} s"


def by_unit(name: str, value: Any) -> str:
    """Format a value in the unit that the end of its field's name gives.

    `queued_seconds` is a latency, `prompt_tokens` a count, `hit_rate` a share; values of other fields are shown
    unchanged.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NONE if value is None else str(value)
    if name.endswith("_seconds"):
        return seconds(value)
    return share(value) if name.endswith(("_rate", "_share")) else count(value) if isinstance(value, int) else f"{value:g}"


def benefit(value: float | None) -> str:
    """Format the predicted gain of a move in seconds: `4.22 s faster`. A move without a gain is not described as
    faster.
    """
    if value is None:
        return "not predicted"
    size = seconds(abs(value))
    return "no difference" if size == seconds(0.0) else f"{size} faster" if value > 0 else f"{size} slower"


def won(value: float | None) -> str:
    """Format the seconds that moves saved or lost: `1.20 s saved`, `300 ms lost`, `30 min saved`; an en dash if
    unknown.
    """
    if value is None:
        return NONE
    size = seconds(abs(value)) if abs(value) < 120 else span(abs(value))
    return "no difference" if size == seconds(0.0) else f"{size} saved" if value > 0 else f"{size} lost"


def rate(value: float | None) -> str:
    """Format a rate: without decimals from 100, with one decimal below 100, with two significant digits below 0.1. A
    rate below 0.001 is shown as `< 0.001`; None as an en dash.
    """
    if value is None:
        return NONE
    if 0 < abs(value) < 0.0995:
        return f"{value:.2g}" if abs(value) >= 0.001 else "< 0.001"
    return f"{value:.1f}" if abs(value) < 99.95 else count(value)


def score(value: float) -> str:
    """Format a policy's score: four significant digits, without an exponent for common sizes."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def span(total: float) -> str:
    """Format a duration in seconds in its two largest units: 4325 → `1 h 12 min`."""
    whole = max(0, round(total))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 and whole < 600 else f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min" if whole % 3600 // 60 else f"{whole // 3600} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h" if whole % 86400 // 3600 else f"{whole // 86400} d"


def ago(moment: datetime, now: datetime) -> str:
    """Format a time relative to now: `12 s ago`, `3 min ago`, `in 3 h`; `now` for times slightly in the future (clock
    skew).
    """
    gone = (now - moment).total_seconds()
    if gone <= -SKEW_SECONDS:
        return f"in {span(-gone)}"
    if gone < 1:
        return "now"
    return f"{int(gone // 60)} min ago" if 60 <= gone < 3600 else f"{span(gone)} ago"


def clock(moment: datetime) -> str:
    """Format a time as UTC date and time with seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def weekday(moment: datetime) -> str:
    """Format a time as UTC day of the week, date and time to the minute: `Mon 23 Nov 07:30`."""
    return moment.astimezone(UTC).strftime("%a %d %b %H:%M")


def told(detail: str, remedy: str | None) -> str:
    """Join the detail and the remedy of a problem as sentences. A remedy that the detail already contains is not
    repeated.
    """
    detail, remedy = detail.strip(), (remedy or "").strip()
    parts = [detail] if remedy.rstrip(".") in detail else [detail, remedy[0].upper() + remedy[1:]]
    return " ".join(part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part)


def labelled(detail: str, field: str | None, labels: Mapping[str, str]) -> str:
    """Return the error in a form's value, in which the field has its name on the form: `requests_per_minute: 'many' …`
    → `Requests a minute: 'many' …`. `labels` has the words beside each field, by the field's name.
    """
    name = max((one for one in labels if f".{field}".endswith(f".{one}")), key=len, default=None)
    named = field is not None and re.match(rf"{re.escape(field)}(?!\w)", detail)
    return labels[name] + detail[named.end() :] if name and named else detail


_CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_REASONS = {
    "cold": "new session",
    "session-cold": "new session",
    "hot-migration": "hot instance",
    "hotspot": "overloaded queue",
    "prefix-equal": "same prefix: least loaded",
    "prefix-affinity": "most of the prompt cached",
    "prefix-outweighed": "cached elsewhere, but too busy",
    "prefix-key": "prefix moved on the ring",
    "slo-overloaded": "TTFT at risk",
    "drawn": "drawn at random",
}


def words(text: str) -> str:
    """Format a reason or trigger in words: `hot-migration` → `hot instance`, `no-room` → `no room`."""
    return _REASONS.get(text) or text.replace("-", " ").replace("_", " ")


def deed(action: str) -> str:
    """Format an action of the audit log as words that follow the actor: `operator.InstanceCreated` → `instance
    created`, `operator.SLOChanged` → `SLO changed`, `pool.spec-changed` → `pool spec changed`.
    """
    said = words(_CAPITALS.sub(" ", action.removeprefix("operator.")).replace(".", " "))
    return " ".join(word if word.isupper() else word.lower() for word in said.split())


def plain(value: Any) -> str:
    """Format a JSON value of a diff as short text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
