"""Reads and writes time ranges in the form in which people type them and URLs contain them: `now-1h`, `2h`,
`2026-11-21T10:00Z`.

Pure; the present time is an argument.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead.instants import read_instant
from fairlead.range_steps import covered

DEFAULT_START = "now-1h"
PRESETS = (("15 min", "now-15m"), ("1 h", "now-1h"), ("6 h", "now-6h"), ("24 h", "now-24h"), ("7 d", "now-7d"))
LONGEST = timedelta(days=90)
SHORTEST = timedelta(seconds=1)
YEARS = (2000, 2200)
"""The first and the last year of accepted times. Other years are typing mistakes, and calculations fail near the ends
of the calendar.
"""

_YOUNG = ((120, "now-2m"), (300, "now-5m"), (900, "now-15m"), (1800, "now-30m"))
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORDS = {"s": "s", "m": "min", "h": "h", "d": "d", "w": "w"}
_DURATION = re.compile(r"(?:\d{1,9}[smhdw])+")
_PART = re.compile(r"(\d+)([smhdw])")
_REMEDY = "write a span such as 2h or now-30m, or a UTC time such as 2026-11-21 10:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A half-open range of UTC time.

    `start_text` and `end_text` are the two ends as the URL contains them; the range is `live` if `end_text` is `now`.
    """

    start: datetime
    end: datetime
    start_text: str
    end_text: str
    now: datetime

    @property
    def live(self) -> bool:
        """Whether the range ends now and therefore moves with the clock."""
        return self.end_text == "now"

    @property
    def seconds(self) -> float:
        """Length of the range in seconds."""
        return (self.end - self.start).total_seconds()

    @property
    def label(self) -> str:
        """Text of the button that opens the time picker: `Last 1 h`, or the two ends in UTC."""
        for words, start in PRESETS:
            if self.live and self.start_text == start:
                return f"Last {words}"
        if self.live and self.start_text.startswith("now-"):
            return "Last " + _PART.sub(lambda part: f"{part[1]} {_WORDS[part[2]]} ", self.start_text.removeprefix("now-")).strip()
        if self.start.date() == self.end.date():
            return f"{self.start:%d %b %H:%M} – {self.end:%H:%M} UTC"
        return f"{self.start:%d %b %H:%M} – {self.end:%d %b %H:%M} UTC"

    @property
    def absolute(self) -> dict[str, str]:
        """The range with fixed times in place of `now`, as query parameters of a permalink."""
        return {"from": stamp(self.start), "to": stamp(self.end)}

    @property
    def counted(self) -> dict[str, str]:
        """The range as query parameters, for lists that are shown next to figures. Figures are counted in steps of
        time, so the range is widened to whole steps, and list and figures cover the same time. A live range still ends
        now.
        """
        whole = covered(self.start, self.end, self.now)
        return {"from": stamp(whole.start), "to": "now" if self.live else stamp(min(whole.end, self.now))}

    @property
    def asked(self) -> dict[str, str]:
        """The range as query parameters for the API. For figures that are counted in steps of time, the API itself
        widens the range to whole steps.
        """
        return {"from": self.start_text, "to": "now"} if self.live else self.absolute

    @property
    def zoomed_out(self) -> dict[str, str] | None:
        """A range twice as long, but not longer than the maximum, as query parameters. A live range stays live; a fixed
        range is extended on both sides, but not into the future. None if the range already has the maximum length.
        """
        length = self.end - self.start
        wide = min(2 * length, LONGEST)
        if length >= LONGEST:
            return None
        if self.live:
            return {"from": f"now-{span_text(wide.total_seconds())}", "to": "now"}
        end = max(self.end, min(self.end + (wide - length) / 2, self.now))
        return {"from": stamp(end - wide), "to": stamp(end)}

    @property
    def earlier(self) -> dict[str, str]:
        """The range moved back by half its length, as query parameters."""
        step = (self.end - self.start) / 2
        return {"from": stamp(self.start - step), "to": stamp(self.end - step)}

    @property
    def later(self) -> dict[str, str] | None:
        """The range moved forward by half its length, as query parameters; it becomes live if that reaches the present.
        None for a range that already reaches the present.
        """
        step = (self.end - self.start) / 2
        if self.end >= self.now:
            return None
        if self.end + step >= self.now:
            return {"from": f"now-{span_text(self.seconds)}", "to": "now"}
        return {"from": stamp(self.start + step), "to": stamp(self.end + step)}


def lifetime_start(created: datetime, now: datetime) -> str:
    """Return the default start of a range: one hour ago, or later for an object that was created later, so that a
    picture is not mostly empty.
    """
    age = (now - created).total_seconds()
    return next((start for seconds, start in _YOUNG if age < seconds * 0.9), DEFAULT_START)


def start_within_life(start: str, created: datetime, now: datetime) -> str:
    """Return `start`, or the start of the shortest preset range that covers the time since the creation of an object,
    whichever is later.
    """
    covering = covering_start(created, now)
    return max(start, covering, key=lambda one: parse_range(one, "now", now).start)


def covering_start(moment: datetime, now: datetime) -> str:
    """Return the start of the shortest preset range that includes this time; of the longest preset range if none
    includes it.
    """
    starts = dict.fromkeys((*(start for _, start in _YOUNG), *(start for _, start in PRESETS[1:])))
    return next((start for start in starts if parse_range(start, "now", now).start < moment), PRESETS[-1][1])


def stamp(moment: datetime) -> str:
    """Format a time according to RFC 3339, in UTC and to the second, with `Z` at the end."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span_text(seconds: float) -> str:
    """Format a duration exactly and as short as possible, in one whole unit: 7200 → `2h`, 5400 → `90m`."""
    whole = max(1, round(seconds))
    for unit in ("d", "h", "m"):
        if whole % _UNITS[unit] == 0:
            return f"{whole // _UNITS[unit]}{unit}"
    return f"{whole}s"


def parse_range(start_text: str | None, end_text: str | None, now: datetime) -> TimeRange:
    """Read the range in the parameters `from` and `to` of a URL (either may be missing or empty).

    Raises InvalidInput, which names the wrong parameter.
    """
    start_given = (start_text or "").strip() or DEFAULT_START
    end_given = (end_text or "").strip() or "now"
    start, start_kept = _moment("from", start_given, now)
    end, end_kept = _moment("to", end_given, now)
    if end - start < SHORTEST:
        raise InvalidInput("from", start_given, f"it must be at least 1 s before `to` ({end_given})")
    if end - start > LONGEST:
        raise InvalidInput("from", start_given, "a range can span at most 90 days")
    return TimeRange(start=start, end=end, start_text=start_kept, end_text=end_kept, now=now)


def _moment(name: str, text: str, now: datetime) -> tuple[datetime, str]:
    lowered = text.lower().replace(" ", "")
    if lowered == "now":
        return now, "now"
    span = lowered.removeprefix("now").removeprefix("-")
    if _DURATION.fullmatch(span):
        seconds = sum(int(amount) * _UNITS[unit] for amount, unit in _PART.findall(span))
        if seconds > LONGEST.total_seconds() * 4:
            raise InvalidInput(name, text, "spans reach back at most 360 days")
        return now - timedelta(seconds=seconds), f"now-{span}"
    try:
        moment = read_instant(text)
    except ValueError:
        raise InvalidInput(name, text, _REMEDY) from None
    if not YEARS[0] <= moment.year <= YEARS[1]:
        raise InvalidInput(name, text, _REMEDY)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment, stamp(moment)
