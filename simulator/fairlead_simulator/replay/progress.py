"""Progress on standard error: a bar on a terminal, a line every few seconds otherwise."""

import asyncio

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead_simulator.replay.open_loop import Replay
from fairlead_simulator.replay.outcomes import ReplayVerdict, Tally
from fairlead_simulator.traces.descriptions import percentile

_BAR_SECONDS = 0.25
_LINE_SECONDS = 5.0


def state_line(tally: Tally, in_flight: int, total: int | None) -> str:
    """The present state in one line."""
    sent = f"{tally.sent}/{total}" if total is not None else str(tally.sent)
    counts = "  ".join(f"{verdict.value} {tally.verdicts[verdict]}" for verdict in ReplayVerdict)
    ttft = f"  TTFT p50 {percentile(sorted(tally.ttft), 50) * tally.time_scale:.3f} s" if tally.ttft else ""
    return f"sent {sent}  {counts}  in flight {in_flight}{ttft}"


async def show_progress(replay: Replay, total: int | None, console: Console) -> None:
    """Show progress until cancelled. `total` None: the replay has no end."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            console.print(f"replay: {state_line(replay.tally, replay.in_flight, total)}", highlight=False, soft_wrap=True)
    columns = (TextColumn("replay"), BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        while True:
            counts = replay.tally.verdicts
            description = (
                f"served {counts[ReplayVerdict.SERVED]} rejected {counts[ReplayVerdict.REJECTED]} failed {counts[ReplayVerdict.FAILED]}"
            )
            progress.update(task, completed=replay.tally.ended, description=description)
            await asyncio.sleep(_BAR_SECONDS)
