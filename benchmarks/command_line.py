"""Shared parts of the benchmarks' command lines: checks of numbers, files and names, and a SIGTERM that ends all
processes.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path


def count(text: str) -> int:
    """Return a whole number of 1 or more. Raises argparse.ArgumentTypeError."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return found


def above_zero(text: str) -> float:
    """Return a number above 0, in the unit of the argument. Raises argparse.ArgumentTypeError."""
    found = _number(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return found


def zero_or_more(text: str) -> float:
    """Return a number of 0 or more, in the unit of the argument. Raises argparse.ArgumentTypeError."""
    found = _number(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return found


def a_file(text: str) -> Path:
    """Return the path of an existing file. Raises argparse.ArgumentTypeError."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file")
    return path


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of names separated by commas. It raises argparse.ArgumentTypeError for a name that is not in
    `known`.
    """

    def names(text: str) -> list[str]:
        found = text.split(",")
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return names


def numbers_of(text: str) -> list[int]:
    """Return the whole numbers of 1 or more in a text, separated by commas. Raises argparse.ArgumentTypeError."""
    return [count(one) for one in text.split(",")]


def end_everything_when_ended() -> None:
    """Let a SIGTERM end this program in the same way as Ctrl-C, so that the processes that it started end, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan
