"""The definition of a reproduction: a section of docs/benchmarks.md, written from runs of the simulator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

IMAGES = "images/benchmarks"
"""The folder of plots, relative to docs/."""
SEEDS = 3
"""The number of seeds of a section, if no other is requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The arguments of every section. `docs` is the page's folder; a section saves its plots by `image`.

    `conversation` is a trace file in Mooncake's format; None to generate a trace. With `quick`, a section does the
    smallest runs that still execute all of its code. This is for its test; the figures mean nothing.

    Seeds are counted from `first_seed` on. The next three fields are for sections that take long. `whole` selects a
    whole grid instead of a subset that spans it. `only` has words that the names of the settings to run must contain.
    `rows` is a file of rows found earlier, to which new rows are added. The last three fields are for `unseen_traffic`:
    traces by kind, and policies and rates instead of its own.
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
        """Return the path of a plot, and make its folder. The page links to `images/benchmarks/NAME`."""
        path = self.docs / IMAGES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A reproduction. `write` runs it and returns its Markdown, without the heading."""

    name: str
    title: str
    write: Callable[[Context], str]
