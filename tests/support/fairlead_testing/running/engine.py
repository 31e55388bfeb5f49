"""A simulated engine server in a process of its own, for tests that need real HTTP."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port


@dataclass
class RunningEngine:
    """The process and where it listens."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def terminate(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


StartEngine = Callable[..., RunningEngine]


@contextmanager
def engine_starter() -> Iterator[StartEngine]:
    """A function that starts engines on free ports, serving `m` and ready at once unless its flags say
    otherwise; all end with the block. The ports are not those of outgoing connections, so that an engine which ended
    can be started again on its own.
    """
    running: list[RunningEngine] = []

    def start(*flags: str) -> RunningEngine:
        command = [
            sys.executable,
            "-m",
            "fairlead_simulator.engine_server",
            "--model",
            "m",
            "--port",
            str(free_port()),
            "--startup-seconds",
            "0",
            *flags,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on" in line, "the engine did not start"
        engine = RunningEngine(process, line.split()[-1])
        running.append(engine)
        return engine

    try:
        yield start
    finally:
        for engine in running:
            engine.process.kill()
            engine.process.wait()
            if engine.process.stdout is not None:
                engine.process.stdout.close()
