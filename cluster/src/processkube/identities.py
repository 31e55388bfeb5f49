"""Identifies processes by pid and start time, and finds and ends them.

The start time distinguishes the process from any later process with the same pid.

Works on Linux only (`/proc`, pidfd).
"""

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """The identity of one process. A later process with the same pid has another identity.

    `started_ticks` is the process's start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    """

    pid: int
    started_ticks: int


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process with this pid; None if there is none, or if it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name may hold blanks and parentheses
    if fields[0] in {"Z", "X"}:
        return None
    return ProcessIdentity(pid=pid, started_ticks=int(fields[19]))


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that the process has used; 0 if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_alive(identity: ProcessIdentity) -> bool:
    """Return whether the identified process still runs. A later process with the same pid does not count."""
    return identity_of(identity.pid) == identity


def send_signal(identity: ProcessIdentity, number: int, *, group: bool = False) -> bool:
    """Send a signal to the process or, if `group`, to its whole process group. Return False if the process is already
    gone.
    """
    if not is_alive(identity):
        return False
    try:
        if group:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    return True


def uptime_seconds(identity: ProcessIdentity) -> float:
    """Return the seconds since the process started."""
    since_boot = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return max(0.0, since_boot - identity.started_ticks / os.sysconf("SC_CLK_TCK"))


def end_processes(identities: Iterable[ProcessIdentity], *, grace_seconds: float, first_signal: int = signal.SIGTERM) -> int:
    """Send `first_signal` to each process, wait up to `grace_seconds` for all of them together, and then kill the
    processes that still run.

    Return the number of processes that were alive at first.
    """
    alive = [identity for identity in identities if send_signal(identity, first_signal)]
    deadline = time.monotonic() + grace_seconds
    for identity in alive:
        if not wait_for_end(identity, max(0.0, deadline - time.monotonic())):
            send_signal(identity, signal.SIGKILL)
    for identity in alive:
        wait_for_end(identity, 5.0)
    return len(alive)


def wait_for_end(identity: ProcessIdentity, timeout_seconds: float) -> bool:
    """Block until the process has ended. Return False if it still runs after the timeout."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(identity):  # the pid was taken over before we opened it
            return True
        poller = select.poll()  # not select(): descriptors may be above 1023
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_seconds * 1000)) or not is_alive(identity)
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


async def until_end(identity: ProcessIdentity) -> None:
    """Wait until the process has ended. It need not be a child of this process.

    If it is a child, its exit status can still be collected afterwards.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if is_alive(identity):
            loop.add_reader(descriptor, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
