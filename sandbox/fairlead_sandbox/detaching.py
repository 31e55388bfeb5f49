"""`fairlead up --detach` starts the supervisor in a new session and waits until it is ready or has failed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fairlead_sandbox.command_lines import command_line
from fairlead_sandbox.errors import AlreadyRunning, StartFailed
from fairlead_sandbox.state_directory import StateDirectory

WAIT_SECONDS = 600.0


def start_detached(directory: StateDirectory, arguments: Sequence[str], say: Callable[[str], None]) -> str:
    """Start `up` in the background and return its summary.

    Raises AlreadyRunning when a supervisor holds the directory, and StartFailed with the supervisor's last line of
    output when the start fails. If the wait is interrupted, or ended by SIGTERM or SIGHUP, nothing is left running.
    """
    directory.create()
    if directory.is_locked():
        note = directory.read_run()
        urls = ", ".join(f"{name} {url}" for name, url in note.urls.items()) if note else ""
        where = f"{directory.root} ({urls or 'still starting'})"
        raise AlreadyRunning(f"a sandbox is already running in {where}; `{command_line('down', directory.root)}` stops it")
    log_path = directory.logs / "supervisor.log"
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]  # as by nohup
    before = {number: signal.signal(number, _leave) for number in heard}
    try:
        with log_path.open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "fairlead_sandbox", "up", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return _summary_when_ready(child, directory, log_path, say)
        except (KeyboardInterrupt, SystemExit):  # the child has a session of its own, so that no signal for us reaches it
            child.terminate()
            child.wait()
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _summary_when_ready(child: "subprocess.Popen[bytes]", directory: StateDirectory, log_path: Path, say: Callable[[str], None]) -> str:
    shown: set[str] = set()
    began = moved_at = time.monotonic()
    while time.monotonic() < moved_at + WAIT_SECONDS:
        ended = child.poll() is not None
        note = directory.read_run()
        if note is not None and note.supervisor_pid == child.pid:
            for process in note.processes:
                if process.state in {"ready", "done"} and process.name not in shown:
                    shown.add(process.name)
                    moved_at = time.monotonic()
                    say(f"  {time.monotonic() - began:5.1f} s  {process.name} {process.state}")
            if note.phase == "ready":
                return note.summary
        if ended:
            said = _last_line(log_path.read_text(encoding="utf-8", errors="replace"))
            raise StartFailed(said if "(log: " in said else f"{said} (log: {log_path})")
        time.sleep(0.1)
    child.terminate()
    raise StartFailed(f"the sandbox is not ready, and no further process became ready within {WAIT_SECONDS:g} s (log: {log_path})")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("fairlead: ") if lines else "the supervisor ended without a message"
