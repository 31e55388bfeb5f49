"""The default policy and other policies on traffic for which nobody tuned it: chats, coding agents, long documents,
bursts.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from reproductions.runs import table
from reproductions.sections import Context, Section
from reproductions.unseen_traffic_cells import (
    GENERATED,
    OURS,
    REQUESTS,
    Rows,
    Setting,
    UnseenRow,
    cells_of,
    measure,
    settings_of,
)

GOOD, FIRST, SPEED = 0.01, 0.03, 0.03
"""The leads of another policy up to which they are accepted: by goodput (0-1), by first tokens in time (0-1), and by
output tokens per second (as a share of `fairlead`'s).
"""
TARGETS: tuple[tuple[str, Callable[[UnseenRow], float], float], ...] = (
    ("goodput", attrgetter("goodput"), GOOD),
    ("first tokens", attrgetter("first_tokens"), FIRST),
)
HEADING = (
    "",
    "policy",
    "goodput",
    "first tokens",
    "TTFT P50 / P90 / P99, s",
    "TPOT P90, ms",
    "hits",
    "output tokens/s",
    "refused",
    "sessions refused a turn",
)


def write(context: Context) -> str:
    """Run the requested cells and return the section's text."""
    settings = settings_of(context)
    return describe(context, settings, measure(context, cells_of(context, settings)))


def describe(context: Context, settings: Sequence[Setting], rows: Rows) -> str:
    """Return the section's text: a list of what `fairlead` loses, then each setting's table."""
    rivals = [policy for policy in dict.fromkeys(cell.policy for cell in rows) if policy != OURS]
    given = ", ".join(f"`{kind}`" for kind in sorted(context.traces)) or "none"
    made = ", ".join(f"`{kind}`" for kind in sorted({setting.kind for setting in settings} - set(context.traces)))
    seeds = "one seed" if context.seeds == 1 else f"{context.seeds} seeds"
    lost = list(_lost(settings, rows))
    tables = [f"**{setting}**\n\n{table(HEADING, _lines(setting, rows))}" for setting in settings]
    return f"""
`fairlead` with its default parameters beside {", ".join(f"`{name}`" for name in rivals)}, on workloads of other kinds than it was found with: at most
{REQUESTS:,} requests of each, a tenth of them warm-up, {seeds}, rates as multiples of the estimated saturation, no early rejection. Engines fetch
nothing from each other, and the router finds out what decode steps take, as in a real pool. From files of other makers (`--trace KIND=FILE`):
{given}; generated: {made or "none"} (`fairlead traces generate --kind` {", ".join(f"`{kind}`" for kind in GENERATED.values())} and others). *Bursts*: of
each 200 requests half come three times as fast.

*Goodput*: both targets met, in % of all that arrived. *First tokens*: the TTFT target alone. *Sessions refused a turn*: of those with several turns.

{_conclusion(lost, settings, rows)}

{chr(10).join(lost)}

<details><summary>All figures</summary>

{(chr(10) * 2).join(tables)}

</details>
"""


def _conclusion(lost: Sequence[str], settings: Sequence[Setting], rows: Rows) -> str:
    cells = {(cell.setting, cell.rate) for cell in rows if cell.setting in settings}
    return (
        f"A cell is a workload at a rate; another policy is *ahead* with more than {100 * GOOD:g} point of goodput, {100 * FIRST:g} of first tokens or "
        f"{100 * SPEED:g} % of output tokens per second. Of {len(cells)} cells that is so {len(lost)} times{':' if lost else '.'}"
    )


def _lost(settings: Sequence[Setting], rows: Rows) -> Iterator[str]:
    for setting in settings:
        for rate, by_policy in _by_rate(setting, rows):
            ours = by_policy.get(OURS)
            others = {policy: row for policy, row in by_policy.items() if policy != OURS}
            if ours is None or not others:
                continue
            place = f"{setting}, {rate:g}×"
            for words, figure, may_lead in TARGETS:
                best = max(others, key=lambda policy: figure(others[policy]))
                if round(figure(others[best]) - figure(ours) - may_lead, 9) > 0:
                    yield f"- {place}: {words} {100 * figure(ours):.1f} against {100 * figure(others[best]):.1f} % of `{best}`."
            fastest = max(others, key=lambda policy: others[policy].output_tokens_per_second)
            most = others[fastest].output_tokens_per_second
            if ours.output_tokens_per_second < (1 - SPEED) * most:
                yield f"- {place}: {ours.output_tokens_per_second:,.0f} against {most:,.0f} output tokens/s of `{fastest}`."


def _lines(setting: Setting, rows: Rows) -> Iterator[Sequence[str]]:
    for rate, by_policy in _by_rate(setting, rows):
        for policy, row in by_policy.items():
            yield (
                f"{rate:g}×",
                f"`{policy}`",
                f"{100 * row.goodput:.1f}",
                f"{100 * row.first_tokens:.1f}",
                f"{row.ttft_p50:.2f} / {row.ttft_p90:.2f} / {row.ttft_p99:.2f}",
                f"{1e3 * row.tpot_p90:.0f}",
                f"{100 * row.hits:.1f} %",
                f"{row.output_tokens_per_second:,.0f}",
                f"{100 * row.refused:.1f} %",
                f"{100 * row.refused_sessions:.1f} %",
            )


def _by_rate(setting: Setting, rows: Rows) -> Iterator[tuple[float, dict[str, UnseenRow]]]:
    """Yield each rate with its rows by policy, as means over seeds."""
    for rate in sorted({cell.rate for cell in rows if cell.setting == setting}):
        found: dict[str, list[UnseenRow]] = {}
        for cell, row in rows.items():
            if (cell.setting, cell.rate) == (setting, rate):
                found.setdefault(cell.policy, []).append(row)
        yield rate, {policy: _mean(same) for policy, same in found.items()}


def _mean(same: Sequence[UnseenRow]) -> UnseenRow:
    return UnseenRow(**{name: sum(getattr(row, name) for row in same) / len(same) for name in UnseenRow.__dataclass_fields__})


SECTION = Section(name="unseen_traffic", title="The default policy on traffic nobody tuned for", write=write)
