"""The legend of a heatmap: which colour means which number, at the points where a reader looks. Pure."""

from dataclasses import dataclass

from fairlead_client.resources.heatmaps import Heatmap
from fairlead_web.heatmaps.cells import Earlier, most_change, text_of, top_of
from fairlead_web.heatmaps.palette import LIMIT_AT


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A number of the scale; `percent` is its place on the bar, and `strong` says that it is the limit."""

    percent: float
    words: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """The colour bar of one map: the name of its palette, its marks, and what the scale is measured by."""

    palette: str
    marks: tuple[Mark, ...]
    note: str
    alt: str


def legend_of(heatmap: Heatmap, earlier: Earlier | None = None) -> Legend:
    """Exact marks at both ends, at the middle of each slope, and at the limit."""
    if earlier is not None:
        most = most_change(earlier.differences(heatmap))
        words = text_of(most, heatmap.unit)
        return Legend(
            palette="change",
            marks=(Mark(percent=0, words=f"−{words}"), Mark(percent=50, words="same"), Mark(percent=100, words=f"+{words}")),
            note="blue is less than then, orange is more",
            alt="blue is less than then, grey the same, orange more",
        )
    unit, top, limit = heatmap.unit, top_of(heatmap), heatmap.limit
    if limit is None:
        return Legend(
            palette="plain",
            marks=tuple(Mark(percent=share * 100, words=short_of(top * share, unit)) for share in (0.0, 0.5, 1.0)),
            note="scale: absolute" if heatmap.scale == "absolute" else "scale: this range's maximum",
            alt="dark blue is little, bright yellow is much",
        )
    middle = limit + (top - limit) / 2
    return Legend(
        palette="limited",
        marks=(
            Mark(percent=0, words=short_of(0.0, unit)),
            Mark(percent=LIMIT_AT * 50, words=short_of(limit / 2, unit)),
            Mark(percent=LIMIT_AT * 100, words=f"limit {short_of(limit, unit)}", strong=True),
            Mark(percent=(LIMIT_AT + 1) * 50, words=short_of(middle, unit)),
            Mark(percent=100, words=short_of(top, unit)),
        ),
        note="over the limit is orange to red" if any(row.breaches for row in heatmap.rows) else "nothing was over the limit",
        alt="dark blue is little, yellow is at the limit, orange to deep red is beyond it",
    )


def short_of(value: float, unit: str) -> str:
    """A mark's number in the digits that fit: `12.5 k tokens`, `90 %`, `5 s`, `850 ms`."""
    match unit:
        case "tokens":
            return f"{_three(value)} tokens" if value else "0"
        case "share":
            return f"{value * 100:.3g} %"
        case "seconds":
            return "0" if not value else f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
        case _:
            return f"{_three(value)} {unit}" if value else "0"


def _three(value: float) -> str:
    if value < 1000:
        return f"{value:.3g}"
    return f"{value / 1000:.3g} k" if value < 999_500 else f"{value / 1_000_000:.3g} M"
