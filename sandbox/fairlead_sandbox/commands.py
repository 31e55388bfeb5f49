"""The sandbox's subcommands of `fairlead`: up, status, logs, login, down.

Each imports the modules it needs only when it runs.
"""

import asyncio
import errno
import json
import os
import sys
from pathlib import Path

import click

from fairlead_process.option_types import output_option
from fairlead_sandbox.command_lines import STATE_DIR, STATE_DIR_VARIABLE
from fairlead_sandbox.state_directory import StateDirectory

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=STATE_DIR,
    show_default=True,
    envvar=STATE_DIR_VARIABLE,
    help="State directory of the sandbox.",
)


@click.command()
@state_dir_option
@click.option("--routers", type=click.IntRange(1, 8), default=2, show_default=True, help="Number of gateways to run.")
@click.option(
    "--apis", type=click.IntRange(1, 3), default=1, show_default=True, help="Number of control APIs to run, with one shared database."
)
@click.option(
    "--operators", type=click.IntRange(1, 3), default=1, show_default=True, help="Number of operators to run; one of them is active."
)
@click.option("--demo/--no-demo", default=True, show_default=True, help="Create a demo pool of four simulated instances if there is none.")
@click.option(
    "--load/--no-load", default=True, show_default=True, help="Replay a generated trace on the demo pool, so that the pages show activity."
)
@click.option("--chart", is_flag=True, help="Install the Helm chart here and run its pods, instead of running the processes directly.")
@click.option("--detach", "-d", is_flag=True, help="Return when everything is ready and leave it running in the background.")
@click.option("--in-background", is_flag=True, hidden=True)
def up(
    state_dir: Path, routers: int, apis: int, operators: int, demo: bool, load: bool, chart: bool, detach: bool, in_background: bool
) -> None:
    """Start Postgres, Kubernetes API, kubelet, control API, operator and gateways on this machine."""
    directory = StateDirectory(root=state_dir.absolute())
    if detach:
        from fairlead_sandbox.detaching import start_detached

        switches = ["--demo" if demo else "--no-demo", "--load" if load else "--no-load", *(["--chart"] if chart else [])]
        counts = ["--routers", str(routers), "--apis", str(apis), "--operators", str(operators)]
        arguments = ["--state-dir", str(directory.root), *counts, *switches, "--in-background"]
        click.echo("\n" + start_detached(directory, arguments, click.echo))
        return
    from fairlead_sandbox.chart.starting import ChartRun
    from fairlead_sandbox.process_table import ProcessCounts
    from fairlead_sandbox.starting import SandboxRun, UpOptions

    counted = ProcessCounts(routers=routers, apis=apis, operators=operators)
    options = UpOptions(state_dir=directory.root, counts=counted, demo=demo, load=load and demo, detached=in_background)
    run = ChartRun if chart else SandboxRun
    asyncio.run(run(options, dict(os.environ), None if in_background else sys.stdout).run())


@click.command()
@state_dir_option
@output_option
def status(state_dir: Path, as_json: bool) -> None:
    """Show the processes: running, since when, restarts, readiness. Exit code 1 when no sandbox runs."""
    from rich.console import Console

    from fairlead_sandbox.status_board import document, show

    directory = StateDirectory(root=state_dir.absolute())
    if as_json:
        found = document(directory)
        click.echo(json.dumps(found, indent=2))
        running = found["running"]
    else:
        running = show(directory, Console(highlight=False, markup=False, emoji=False))
    if not running:
        sys.exit(1)


@click.command()
@state_dir_option
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines.")
@click.option(
    "--tail", "-n", "count", type=click.IntRange(min=0), default=None, help="Lines from the end of each log (default 200, or 10 of each)."
)
@click.argument("process", required=False)
def logs(state_dir: Path, follow: bool, count: int | None, process: str | None) -> None:
    """Print the log of PROCESS (or of a pod), or the last lines of all."""
    from fairlead_sandbox import log_reading
    from fairlead_sandbox.log_streams import Console

    found = log_reading.find_logs(StateDirectory(root=state_dir.absolute()), process)
    console = Console(sys.stdout, names=tuple(found), coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    count = count if count is not None else (200 if process else 10)

    def heed_reader() -> None:
        if console.reader_left:  # else it would follow without end, with no reader
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def emit(name: str, line: str) -> None:
        console.write_plain(line) if process else console.write(name, line)
        heed_reader()

    def wait(seconds: float) -> None:
        console.wait(seconds)
        heed_reader()

    ends: dict[str, int] = {}
    for name, path in found.items():
        lines, ends[name] = log_reading.last_lines(path, count)
        for line in lines:
            emit(name, line)
    if follow:
        for name, line in log_reading.follow(found, ends, wait=wait):
            emit(name, line)


@click.command()
@state_dir_option
@output_option
def login(state_dir: Path, as_json: bool) -> None:
    """Print a new link that signs its first visitor in to the dashboard; good for ten minutes."""
    from fairlead_sandbox.ending import supervisor_of
    from fairlead_sandbox.errors import SandboxError
    from fairlead_sandbox.secret_tokens import load_or_create
    from fairlead_sandbox.state_directory import api_urls
    from fairlead_sandbox.summary import make_login_link

    directory = StateDirectory(root=state_dir.absolute())
    note = directory.read_run()
    if note is None or supervisor_of(note) is None:
        raise SandboxError(f"no sandbox is running in {directory.root}; `fairlead up` starts one")
    link = asyncio.run(make_login_link(api_urls(note.urls), load_or_create(directory.secrets).admin))
    click.echo(json.dumps({"url": link}) if as_json else link)


@click.command()
@state_dir_option
@output_option
def down(state_dir: Path, as_json: bool) -> None:
    """Stop everything that `fairlead up` started; the state stays. Harmless when nothing runs."""
    from fairlead_sandbox.ending import bring_down

    done = bring_down(StateDirectory(root=state_dir.absolute()))
    click.echo(json.dumps({"state_dir": str(state_dir.absolute()), "done": done}) if as_json else done)
