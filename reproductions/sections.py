"""The definition of a reproduction: a section of docs/benchmarks.md, written from runs of the simulator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

IMAGES = "images/benchmarks"
"""The folder of plots, relative to docs/."""
SEEDS = 3
"""Number of seeds of a section, unless another is requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every section is given. `docs` is the page's folder; a section saves plots by `image`.

    `conversation` is a trace file in Mooncake's format, None to generate a trace. `quick` asks for the smallest runs
    that still execute all of a section's code, for its test: their figures mean nothing.

    Seeds are counted from `first_seed` on. The next three fields are for sections that take long: a `whole` grid in
    place of a subset that spans it; `only`, words that the names of the settings to run must contain; and a file of
    `rows` already found, to which new ones are added. The last three are of `unseen_traffic`: traces by kind, and
    policies and rates in place of its own.
    """

    docs: Path
    conversation: Path | None = None
    seeds: int = SEEDS
    jobs: int = 1
    quick: bool = False
    say: Callable[[str], None] = print
    first_seed: int = 0
    whole: bool = False
    only: tuple[str, ...] = ()
    rows: Path | None = None
    traces: Mapping[str, Path] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    def image(self, name: str) -> Path:
        """Return the file of a plot (its folder is made); the page links to `images/benchmarks/NAME`."""
        path = self.docs / IMAGES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One reproduction. `write` runs it and returns its Markdown, without the heading."""

    name: str
    title: str
    write: Callable[[Context], str]
