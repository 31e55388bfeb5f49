"""Figures with their targets, and messages about progress."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A figure beside its target."""

    what: str
    figure: str
    target: str
    kept: bool

    def __str__(self) -> str:
        return f"| {self.what} | {self.figure} | {self.target} | {'yes' if self.kept else '**no**'} |"


def say(words: str) -> None:
    """Print progress to stderr, because the table goes to stdout."""
    print(words, file=sys.stderr, flush=True)
