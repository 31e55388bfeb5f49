"""Runs containers as processes: starts, watches and signals them, and limits the size of their log files. It makes no
decisions.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processkube.identities import ProcessIdentity, identity_of, send_signal, until_end
from processkube.probing import ProbeAnswer

LOG_LIMIT_BYTES = 8 * 1024 * 1024
LOG_KEPT_BYTES = 1024 * 1024
COPIED_AT_ONCE_BYTES = 64 * 1024
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the kubelet's environment that containers get, too. Python needs these variables to run. None of them is
a credential.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended.

    For a process that was started by an earlier kubelet, the real exit code is unknown: `exit_code` is 255, and
    `message` says so.
    """

    exit_code: int
    signal: int
    message: str = ""


class ProcessRuntime:
    """Starts processes that continue when the kubelet ends, because each has its own session and writes straight to the
    pod's log file.
    """

    def __init__(
        self,
        log_folder: Path,
        *,
        inherited: Sequence[str] = (),
        log_limit_bytes: int = LOG_LIMIT_BYTES,
        log_kept_bytes: int = LOG_KEPT_BYTES,
    ) -> None:
        self._logs = log_folder
        self._inherited = (*INHERITED, *inherited)
        self._limit = log_limit_bytes
        self._kept = log_kept_bytes
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def log_path(self, namespace: str, name: str) -> Path:
        """Return the path of the pod's log file. The API server reads the log from this path."""
        return self._logs / f"{namespace}_{name}.log"

    def start(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> ProcessIdentity:
        """Start a process that appends its output to the file `log`. Raises OSError if the command cannot be
        executed.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=self._environment(variables),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        self._children[child.pid] = child
        return identity_of(child.pid) or ProcessIdentity(pid=child.pid, started_ticks=-1)

    async def run(self, command: Sequence[str], variables: Mapping[str, str], timeout_seconds: float) -> ProbeAnswer:
        """Run a command until it ends. Return a healthy answer if the exit code is 0. Otherwise the answer is explained
        by the last line of the command's output, or by the timeout.
        """
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment(variables),
                start_new_session=True,
            )
        except OSError as problem:
            return ProbeAnswer(ok=False, detail=str(problem))
        try:
            async with asyncio.timeout(timeout_seconds):
                output, _ = await child.communicate()
        except TimeoutError:
            return ProbeAnswer(ok=False, detail=f"{command[-1]}: no end within {timeout_seconds:g} s")
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        lines = output.decode(errors="replace").strip().splitlines()
        return ProbeAnswer(ok=child.returncode == 0, detail=lines[-1] if lines else f"exit code {child.returncode}")

    async def wait(self, process: ProcessIdentity) -> Exit:
        """Wait until the process has ended, and return how it ended. An earlier kubelet may have started it."""
        await until_end(process)
        child = self._children.pop(process.pid, None)
        if child is None:
            return Exit(exit_code=255, signal=0, message="The exit status is unknown: the process was started by an earlier kubelet")
        status = child.wait()  # the child has ended, so this returns at once
        return Exit(exit_code=max(status, 0), signal=max(-status, 0))

    def stop(self, process: ProcessIdentity, number: int) -> None:
        """Send the signal `number` to the process, to ask it to end."""
        send_signal(process, number)

    def kill(self, process: ProcessIdentity) -> None:
        """Kill the process and all processes in its process group."""
        send_signal(process, signal.SIGKILL, group=True)

    def keep_previous_log(self, namespace: str, name: str) -> None:
        """Keep the current log as the log of the previous container, so that a new log begins."""
        with contextlib.suppress(FileNotFoundError):
            self.log_path(namespace, name).replace(self._previous(namespace, name))

    def _previous(self, namespace: str, name: str) -> Path:
        return self.log_path(namespace, name).with_suffix(".previous")

    def remove_log(self, namespace: str, name: str) -> None:
        """Remove both logs of a pod that is gone: the current log and the log of the previous container."""
        self.log_path(namespace, name).unlink(missing_ok=True)
        self._previous(namespace, name).unlink(missing_ok=True)

    async def bound_logs(self, every_seconds: float = 5.0) -> None:
        """Shorten log files that exceed the limit, so that only their last part is left. Never returns.

        A line can be lost only if it is written in the moment between the last read at the file's end and the
        truncation.
        """
        while True:
            await asyncio.sleep(every_seconds)
            for path in self._logs.glob("*.log"):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_size > self._limit:
                        await asyncio.to_thread(self._cut, path)

    def _cut(self, path: Path) -> None:
        """Shorten a log file in place, because the process keeps it open. The process writes in append mode, so it
        continues at the new end.

        The last part is copied to the beginning of the file. Lines that the process writes during the copy are copied,
        too.
        """
        with path.open("r+b", buffering=0) as file:
            start = file.seek(-self._kept, os.SEEK_END)
            start += file.read(self._kept).find(b"\n") + 1
            copied = 0
            while part := os.pread(file.fileno(), COPIED_AT_ONCE_BYTES, start + copied):
                copied += os.pwrite(file.fileno(), part, copied)
            file.truncate(copied)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in self._inherited if name in os.environ}
        return inherited | {"PYTHONUNBUFFERED": "1"} | dict(variables)
