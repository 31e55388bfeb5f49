"""`fairlead status` shows the processes of a sandbox in their current state, even if its note is out of date."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from fairlead_process.tables import plain_table, print_whole
from fairlead_sandbox.command_lines import command_line
from fairlead_sandbox.ending import supervisor_of
from fairlead_sandbox.state_directory import ProcessNote, RunNote, StateDirectory
from processkube.identities import ProcessIdentity, is_alive, uptime_seconds
from processkube.probing import ask_url

PROBE_SECONDS = 2.0
COLOURS = {"ready": "green", "done": "green", "starting": "yellow", "backing-off": "red", "dead": "red", "not ready": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One line of the table; every cell is text."""

    name: str
    pid: str
    uptime: str
    restarts: str
    readiness: str
    detail: str


async def rows_of(note: RunNote) -> list[ProcessRow]:
    """Return a row for every process in the note: whether the process runs and, if it has a URL, whether it responds at
    the URL.
    """
    return list(await asyncio.gather(*(_row(process) for process in note.processes)))


def document(directory: StateDirectory) -> dict[str, Any]:
    """Return the content of the table as a document, for programs."""
    note = directory.read_run()
    rows = [] if note is None else asyncio.run(rows_of(note))
    running = note is not None and supervisor_of(note) is not None
    urls = note.urls if note is not None and running else {}
    return {"state_dir": str(directory.root), "running": running, "urls": urls, "processes": [asdict(row) for row in rows]}


def show(directory: StateDirectory, console: Console) -> bool:
    """Print the table; return False when no supervisor runs on the directory."""
    note = directory.read_run()
    if note is None:
        click.echo(f"no sandbox in {directory.root}; `fairlead up` starts one", err=True)
        return False
    running = supervisor_of(note) is not None
    rows = asyncio.run(rows_of(note))
    if running or any(row.pid for row in rows):
        table = plain_table(("Process", "PID", "Uptime", "Restarts", "State", ""), right={"PID", "Uptime", "Restarts"})
        for row in rows:
            table.add_row(
                row.name, row.pid, row.uptime, row.restarts, Text(row.readiness, style=COLOURS.get(row.readiness, "")), row.detail
            )
        print_whole(console, table)
    if not running:
        left = sum(bool(row.pid) for row in rows)
        more = f"; {left} of its processes are left, `{command_line('down', directory.root)}` ends them" if left else ""
        why = f" (last start failed: {note.problem})" if note.phase == "failed" else ""
        click.echo(f"no sandbox is running in {directory.root}{more}{why}", err=True)
        return False
    for name, url in note.urls.items():
        login = f"  (dashboard: {command_line('login', directory.root)})" if name == "api" else ""
        console.print(f"{name:<14} {url}{login}", soft_wrap=True)
    if directory.kubeconfig.exists():  # `fairlead serve` has none
        console.print(f"{'kubeconfig':<14} {directory.kubeconfig}", soft_wrap=True)
    return True


async def _row(note: ProcessNote) -> ProcessRow:
    restarts = str(note.restarts) if note.state != "done" else ""
    identity = None
    if note.pid is not None and note.started_ticks is not None:
        identity = ProcessIdentity(pid=note.pid, started_ticks=note.started_ticks)
    if identity is None:
        return ProcessRow(name=note.name, pid="", uptime="", restarts=restarts, readiness=note.state, detail=note.detail)
    if not is_alive(identity):
        return ProcessRow(name=note.name, pid="", uptime="", restarts=restarts, readiness="dead", detail=f"process {note.pid} is gone")
    readiness, detail = note.state, note.detail
    if note.probe is not None and note.state == "ready":
        answer = await ask_url(note.probe, timeout_seconds=PROBE_SECONDS)
        if not answer.ok:
            readiness, detail = "not ready", answer.detail
    uptime = _duration(uptime_seconds(identity))
    return ProcessRow(name=note.name, pid=str(identity.pid), uptime=uptime, restarts=restarts, readiness=readiness, detail=detail)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
