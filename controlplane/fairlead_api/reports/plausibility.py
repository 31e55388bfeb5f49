"""Decides which rows of a report can be stored. Pure.

Every text, number and time in a row has bounds; a row that violates them is dropped, and all other rows are kept. A
router resends a report until it is accepted, so a single faulty row must not prevent its acceptance. Times are compared
with the API's clock. A router's clock may be wrong, but rows about history are stored in any case.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import chain
from math import isnan
from operator import attrgetter
from string import ascii_letters, digits
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fairlead.reports.batches import ROW_KINDS, AskAddress, Report, RouterState, RowKind, RowTime

MAX_NAME = 1024
"""Maximum length of a stored name in bytes of UTF-8; two such names fit into an index entry."""
MAX_COUNT = 2**53
"""Largest integer that is stored: the largest that JSON transmits exactly."""
MAX_STATUS = 599
"""Highest HTTP status that is stored."""
MAX_NUMBER = 1e12
MAX_ITEMS = 1024
"""Maximum number of candidates in a decision, and of latencies in a second."""
CLOCK_TOLERANCE_SECONDS = 30.0
"""Maximum plausible difference in seconds between a router's clock and the API's clock, including the time of
transmission. If the difference is larger, the router's times are converted to the API's clock.
"""
LONGEST_HOST = 253
HOST_CHARACTERS = frozenset(ascii_letters + digits + ".-_:%")
"""The characters of host names and of IPv4 and IPv6 addresses."""
SHORTEST_SECRET = 32
EARLIEST = 1_577_836_800.0
"""2020-01-01 in Unix seconds: no router ran earlier."""

Row = TypeVar("Row")
Check = Callable[[Any], bool]
Column = Callable[[Collection[Any]], bool]
"""A check whether all values of one field can be stored. The values must not include None."""
_known_checks: dict[Any, tuple[tuple[str, Check, str], ...]] = {}
_known_columns: dict[Any, tuple[tuple[Callable[[Any], Any], Column], ...]] = {}


Ages = Mapping[str, float]
"""Maximum age in seconds of rows, by field of Report. Rows of fields without a maximum are stored at any age."""

_STATE = [one.name for one in fields(RouterState) if one.name not in {"sent_at", "asked_at"}]
"""The fields of Report whose rows describe the router's present state."""


def clock_error(report: Report, now: float) -> float:
    """Return the seconds that must be added to a report's times to convert them to the API's clock; 0.0 if the two
    clocks differ little.
    """
    error = now - report.sent_at
    return error if abs(error) > CLOCK_TOLERANCE_SECONDS else 0.0


def plausible(report: Report, ages: Ages, now: float, shift: float) -> tuple[Report, Counter[str]]:
    """Return the part of the report that can be stored, and the number of rows that were dropped or changed, by reason.

    The report's times are corrected by `shift`. Bindings, migrations and re-routes must not be lost, so an impossible
    time in them is replaced by `now`. All other rows with a time are dropped if they are above their maximum age or in
    the future.
    """
    dropped: Counter[str] = Counter()

    def kept(rows: tuple[Row, ...], place: Callable[[Row], Row | None], oldest: float | None = None) -> tuple[Row, ...]:
        """Return the rows of one field that can be stored, and count the dropped rows. `place` takes a row without
        fault and returns the row to store, or None to drop it. If `oldest`, a maximum age in seconds, is given, the
        rows are first checked together; if all are new enough and without fault, they are returned unchanged.
        """
        if oldest is not None and shift == 0.0 and _all_stored(rows, now - oldest, now + CLOCK_TOLERANCE_SECONDS):
            return rows
        good: list[Row] = []
        for row in rows:
            problem = fault(row)
            placed = place(row) if problem is None else None
            if placed is not None:
                good.append(placed)
            else:
                dropped[problem or "time"] += 1
        return tuple(good)

    def in_history(row: Any) -> Any:
        at = row.at + shift
        if not EARLIEST <= at <= now + CLOCK_TOLERANCE_SECONDS:
            dropped["clock"] += 1
            at = now
        return row if at == row.at else replace(row, at=at)

    def a_sample(oldest: float) -> Callable[[Any], Any]:
        def place(row: Any) -> Any:
            at = row.at + shift
            return None if not now - oldest <= at <= now + CLOCK_TOLERANCE_SECONDS else row if shift == 0.0 else replace(row, at=at)

        return place

    def a_second(oldest: float) -> Callable[[Any], Any]:
        def place(row: Any) -> Any:
            second = row.second + round(shift)
            in_time = now - oldest <= second <= now + CLOCK_TOLERANCE_SECONDS
            return None if not in_time else row if shift == 0.0 else replace(row, second=second)

        return place

    def a_minute(oldest: float) -> Callable[[Any], Any]:
        def place(row: Any) -> Any:
            minute = row.minute + round(shift)
            minute -= minute % 60
            in_time = now - oldest <= minute <= now + CLOCK_TOLERANCE_SECONDS
            return None if not in_time else row if minute == row.minute else replace(row, minute=minute)

        return place

    def placing(name: str, kind: RowKind) -> Callable[[Any], Any]:
        match kind.time:
            case RowTime.HISTORY:
                return in_history
            case RowTime.MOMENT:
                return a_sample(ages[name])
            case RowTime.SECOND:
                return a_second(ages[name])
            case RowTime.MINUTE:
                return a_minute(ages[name])
            case RowTime.NONE:
                return _as_it_is

    if shift:
        dropped["clock"] += sum(len(getattr(report, name)) for name, kind in ROW_KINDS.items() if kind.time is not RowTime.NONE)
    named = tuple(
        change if change.id else replace(change, id=f"{report.router}:{report.id}:{number}")
        for number, change in enumerate(report.bindings)
    )
    asked_at = report.asked_at
    if asked_at is not None and (problem := _address_fault(asked_at)) is not None:
        dropped[problem] += 1
        asked_at = None
    rows = {name: getattr(report, name) for name in (*ROW_KINDS, *_STATE)} | {"bindings": named}
    stored: dict[str, Any] = {
        name: kept(rows[name], placing(name, kind), ages[name] if kind.time in _IN_ORDER else None) for name, kind in ROW_KINDS.items()
    }
    state: dict[str, Any] = {name: kept(rows[name], _as_it_is) for name in _STATE}
    return replace(report, asked_at=asked_at, **stored, **state), dropped


_IN_ORDER = frozenset({RowTime.MOMENT, RowTime.SECOND})
"""The kinds of time whose rows are first checked all together. This is faster than checking row by row, and almost
always enough, because rows are rarely faulty.
"""


def _as_it_is(row: Row) -> Row:
    return row


def _address_fault(address: AskAddress) -> str | None:
    """Return the kind of fault because of which a router's address cannot be passed on to other routers: `name`,
    `number` or `size`; None if the address has no fault.
    """
    if not (0 < len(address.host) <= LONGEST_HOST and set(address.host) <= HOST_CHARACTERS):
        return "name"
    return fault(address) if 0 < address.port < 2**16 and len(address.secret) >= SHORTEST_SECRET else "number"


def _all_stored(rows: Collection[Any], first: float, last: float) -> bool:
    """Return whether the times of all rows lie in [first, last] and all rows can be stored unchanged."""
    if not rows:
        return True
    kind = type(next(iter(rows)))
    at = attrgetter("second" if "second" in kind.__dataclass_fields__ else "at")
    times = list(map(at, rows))
    return first <= min(times) and max(times) <= last and not isnan(sum(times)) and faultless(rows)


def faultless(rows: Collection[Any]) -> bool:
    """Return whether `fault` returns None for all of these rows, which must be of one type. It checks field by field,
    which is faster than row by row.
    """
    if not rows:
        return True
    kind = type(next(iter(rows)))
    columns = _known_columns.get(kind)
    if columns is None:
        columns = _known_columns[kind] = _columns(kind)
    for get, check in columns:
        values = [value for value in map(get, rows) if value is not None]
        if values and not check(values):
            return False
    return True


def fault(row: Any) -> str | None:
    """Return the fault that prevents storing a row: `name`, `number` or `size`; None if the row can be stored."""
    kind = type(row)
    checks = _known_checks.get(kind)
    if checks is None:
        checks = _known_checks[kind] = _checks(kind)
    for name, check, reason in checks:
        value = getattr(row, name)
        if value is not None and not check(value):
            return reason
    return None


def _checks(kind: Any) -> tuple[tuple[str, Check, str], ...]:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    hints = get_type_hints(kind)
    found: list[tuple[str, Check, str]] = []
    for field in fields(kind):
        check, reason = (_is_status, "number") if field.name == "status" else _check(hints[field.name])
        if check is not None:
            found.append((field.name, check, reason))
    return tuple(found)


def _check(hint: Any) -> tuple[Check | None, str]:
    if isinstance(hint, UnionType):  # of a kind and None; None is always well
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    origin = get_origin(hint)
    if origin is tuple:
        item, reason = _check(get_args(hint)[0])
        return (lambda rows: len(rows) <= MAX_ITEMS and (item is None or all(map(item, rows)))), reason
    if origin is dict:
        return (
            lambda terms: len(terms) <= MAX_ITEMS and all(_is_name(name) and _is_number(value) for name, value in terms.items())
        ), "number"
    if isinstance(hint, type) and (hint is bool or issubclass(hint, Enum)):
        return None, ""
    if hint is str:
        return _is_name, "name"
    if hint is int:
        return (lambda count: 0 <= count <= MAX_COUNT), "number"
    if hint is float:
        return _is_number, "number"
    return (lambda row: fault(row) is None), "number"


def _columns(kind: Any) -> tuple[tuple[Callable[[Any], Any], Column], ...]:
    hints = get_type_hints(kind)
    return tuple((attrgetter(name), _column(hints[name]) if name != "status" else _each(check)) for name, check, _ in _checks(kind))


def _column(hint: Any) -> Column:
    """Return a check for fields of type `hint`. It takes the values of one field in many rows, whereas the check from
    `_check` takes one value.
    """
    if isinstance(hint, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        items = None if _check(item)[0] is None else _column(item)
        return lambda values: max(map(len, values)) <= MAX_ITEMS and (items is None or _all_items(values, items))
    if hint is str:
        return lambda values: all(map(_is_name, set(values)))
    if hint is int:
        return lambda values: min(values) >= 0 and max(values) <= MAX_COUNT
    if hint is float:
        return lambda values: min(values) >= -MAX_NUMBER and max(values) <= MAX_NUMBER and not isnan(sum(values))
    if is_dataclass(hint):
        return faultless
    check, _ = _check(hint)
    return _each(check) if check is not None else lambda _: True


def _each(check: Check) -> Column:
    return lambda values: all(map(check, values))


def _all_items(values: Collection[Any], check: Column) -> bool:
    items = list(chain.from_iterable(values))
    return not items or check(items)


def _is_status(status: int) -> bool:
    return 100 <= status <= MAX_STATUS


def _is_name(text: str) -> bool:
    return len(text.encode()) <= MAX_NAME and "\0" not in text


def _is_number(number: float) -> bool:
    return -MAX_NUMBER <= number <= MAX_NUMBER  # false for what is not a number
