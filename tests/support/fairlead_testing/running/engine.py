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
    """The engine's process and its URL."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def terminate(self) -> int:
        """Send SIGTERM to the engine and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


StartEngine = Callable[..., RunningEngine]


@contextmanager
def engine_starter() -> Iterator[StartEngine]:
    """Yield a function that starts engines on free ports; all engines end with the block.

    An engine serves the model `m` and is ready at once, unless its flags say otherwise. Its port is outside the range
    of outgoing connections, so that an engine that ended can be started again on its port.
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
