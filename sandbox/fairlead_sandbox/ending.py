"""Ends a sandbox: asks its supervisor to stop, then ends every process that still carries the sandbox's mark.

No process survives, and ending a sandbox twice does no harm.
"""

import shutil
import signal

from fairlead_sandbox.marks import marked_processes
from fairlead_sandbox.postgres import stop_stray
from fairlead_sandbox.state_directory import RunNote, StateDirectory
from processkube.identities import ProcessIdentity, end_processes, is_alive, send_signal, wait_for_end

SUPERVISOR_SECONDS = 45.0
SWEEP_GRACE_SECONDS = 3.0


def bring_down(directory: StateDirectory) -> str:
    """Stop the sandbox of this directory and return a line about the result.

    Blocks until none of its processes runs.
    """
    if not directory.root.is_dir():
        return f"no sandbox in {directory.root}"
    supervisor = supervisor_of(directory.read_run())
    asked = supervisor is not None and send_signal(supervisor, signal.SIGTERM)
    if supervisor is not None and asked and not wait_for_end(supervisor, SUPERVISOR_SECONDS):
        send_signal(supervisor, signal.SIGKILL)
        wait_for_end(supervisor, 5.0)
    left = sweep(directory)
    if directory.socket_directory.parent != directory.root:
        shutil.rmtree(directory.socket_directory, ignore_errors=True)
    if asked:
        return f"stopped the sandbox in {directory.root}" + (f" and ended {left} stray processes" if left else "")
    if left:
        return f"no supervisor ran in {directory.root}; ended {left} stray processes"
    return f"nothing was running in {directory.root}"


def supervisor_of(note: RunNote | None) -> ProcessIdentity | None:
    """Return the supervisor that wrote the note; None if it no longer runs."""
    if note is None or note.supervisor_pid is None or note.supervisor_started_ticks is None:
        return None
    identity = ProcessIdentity(pid=note.supervisor_pid, started_ticks=note.supervisor_started_ticks)
    return identity if is_alive(identity) else None


def sweep(directory: StateDirectory) -> int:
    """End every process of the sandbox in this directory, except its supervisor and the caller. Return the number of
    ended processes.

    The processes are found in three ways: by their mark, by the note about the last run, and by the working directory.
    Only Postgres needs the third way, because it overwrites its environment, which has the mark.
    """
    note = directory.read_run()
    noted = [
        ProcessIdentity(pid=process.pid, started_ticks=process.started_ticks)
        for process in (note.processes if note else ())
        if process.pid is not None and process.started_ticks is not None
    ]
    supervisor = supervisor_of(note)
    ended = sum(stop_stray(data) for data in (directory.postgres_data, *directory.kubernetes.glob("claims/*/pgdata")))
    ended += end_processes({*noted, *marked_processes(directory.root)} - {supervisor}, grace_seconds=SWEEP_GRACE_SECONDS)
    # Repeated, as a process may have started another just before its end.
    while found := set(marked_processes(directory.root)) - {supervisor}:
        ended += end_processes(found, grace_seconds=SWEEP_GRACE_SECONDS)
    return ended
