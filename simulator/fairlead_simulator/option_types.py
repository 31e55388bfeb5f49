"""Errors of the command line, and option types whose errors say what to write. Numbers have a lower and an upper bound;
NaN is always refused.
"""

from math import nan
from typing import Any

import click


class InputUnusable(click.ClickException):
    """An input cannot be used, for example a file's content: printed without usage, with the exit code of a wrong
    option.
    """

    exit_code = 2


class NumberOption(click.FloatRange):
    """A number above 0 (`positive`) or from 0 on, up to `most`."""

    def __init__(self, *, most: float, positive: bool = False) -> None:
        super().__init__(min=0, max=most, min_open=positive)
        self._most = most
        self._wanted = f"a number {'above 0 and at most' if positive else 'from 0 to'} {most:,.10g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = nan
        if not (0 < number <= self._most or (number == 0 and not self.min_open)):
            self.fail(f"{value!r} cannot be used; write {self._wanted}", param, ctx)
        return number


class WholeOption(click.IntRange):
    """A whole number from `least` to `most`."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(min=least, max=most)
        self._bounds = range(least, most + 1)
        self._wanted = f"a whole number from {least:,} to {most:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = self._bounds.start - 1
        if number not in self._bounds:
            self.fail(f"{value!r} cannot be used; write {self._wanted}", param, ctx)
        return number
