"""Processes of the control API that benchmarks start, stop, kill and pause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from fairlead_testing.running.api import BOOTSTRAP
from processkube.testing.ports import free_port

START_SECONDS = 300


class ApiProcess:
    """A process of the control API on its own port, which it keeps over restarts. It accepts the tests' tokens."""

    def __init__(
        self, database_url: str, log: Path, environment: Mapping[str, str] | None = None, module: str = "fairlead_api.main"
    ) -> None:
        """Prepare a process that runs `module`. With `fairlead_host` and `FAIRLEAD_WEB=1` it also serves the web UI."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._module = module
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
            "FAIRLEAD_DATABASE_URL": database_url,
            "FAIRLEAD_BOOTSTRAP_TOKENS": ",".join(":".join(token) for token in BOOTSTRAP),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process without waiting; `until_ready` waits."""
        command = [sys.executable, "-m", self._module, "--port", str(self.port), "--wait-for-database", "60"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def until_ready(self) -> None:
        """Wait until the process can serve. If the process ends before that, end the benchmark."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the API did not start: {self._log.read_text()[-1000:]}")
            time.sleep(0.1)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Send SIGKILL, and return when the process is dead."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP: the connections stay open, and no request is answered."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("it does not run")
        return self._process.pid

    def resident_mb(self) -> float:
        """Return the resident memory of the process in MiB; 0 if it does not run."""
        if self._process is None:
            return 0.0
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process since it started. The CPU seconds of its children are not included."""
        if self._process is None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
