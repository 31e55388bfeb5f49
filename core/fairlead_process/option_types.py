"""Options of commands, and types of options whose error messages name the value and say what to write.

Numbers have bounds; NaN, which click's own ranges accept, is always refused.
"""

from collections.abc import Callable
from functools import wraps
from math import inf, isfinite, nan
from typing import Any

import click

from fairlead.errors import shown
from fairlead.instants import TIME_WANTED, is_usual, read_time
from fairlead_process.clock import utc_now
from fairlead_process.kinds import Kind


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o table|json` to a command, which gets it as `as_json`."""

    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="A table, or JSON for programs."
    )
    @wraps(command)
    def with_output(*arguments: Any, output: str, **options: Any) -> Any:
        return command(*arguments, as_json=output == "json", **options)

    return with_output


class InputUnusable(click.ClickException):
    """Raised if an input, for example a file's content, cannot be used. It is printed without the usage line. The exit
    code is the same as for a wrong option.
    """

    exit_code = 2


class NumberOption(click.FloatRange):
    """A finite number from `least` (exclusive if `positive`) to `most`."""

    def __init__(self, *, least: float = 0, most: float = inf, positive: bool = False) -> None:
        super().__init__(min=least, max=None if most == inf else most, min_open=positive)
        self._least, self._most = least, most
        self._wanted = f"a number {self._bounds(positive)}"

    def _bounds(self, positive: bool) -> str:
        least = f"{self._least:,.10g}"
        if self._most == inf:
            return f"above {least}" if positive else f"of at least {least}"
        return f"above {least} and at most {self._most:,.10g}" if positive else f"from {least} to {self._most:,.10g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = nan
        above = number > self._least or (number == self._least and not self.min_open)
        if not (above and number <= self._most and isfinite(number)):
            self.fail(f"{value!r} cannot be used; write {self._wanted}", param, ctx)
        return number


class WholeOption(click.IntRange):
    """A whole number from `least` to `most`; `most` None = no maximum."""

    def __init__(self, least: int, most: int | None = None) -> None:
        super().__init__(min=least, max=most)
        self._wanted = f"a whole number of at least {least:,}" if most is None else f"a whole number from {least:,} to {most:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = None
        if number is None or number < (self.min or 0) or (self.max is not None and number > self.max):
            self.fail(f"{value!r} cannot be used; write {self._wanted}", param, ctx)
        return number


class KindOption(click.ParamType[Any]):
    """A value of a kind that settings also have, such as an address; see `fairlead_process.kinds`."""

    def __init__(self, kind: Kind[Any], name: str = "text") -> None:
        self.name = name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._kind.parse(value)
        except ValueError:
            self.fail(f"{'it' if self._kind.secret else shown(value)} cannot be used; write {self._kind.wanted}", param, ctx)


class TimeOption(click.ParamType[str]):
    """A time as people write it, `now-6h` or RFC 3339. It stays text, so that the API evaluates it by its own clock."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            usual = is_usual(read_time(value, utc_now()))
        except (ValueError, OverflowError):
            usual = False
        if not usual:
            self.fail(f"{value!r} cannot be used; write {TIME_WANTED}, in the years 2000 to 2199", param, ctx)
        return str(value)
