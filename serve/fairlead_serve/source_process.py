"""The process of the source: `python -m fairlead_serve.source_process --state-dir DIR --file FILE`.

It prints `ready` after its first round.
"""

import asyncio
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from fairlead_client.internal import SystemApi
from fairlead_operator.settings import ControlPlaneSettings
from fairlead_process.clock import SteadyClock
from fairlead_process.commands import run_program
from fairlead_process.doors import Door
from fairlead_process.environment import group, read
from fairlead_process.http_connections import serving_beside
from fairlead_process.logs import LogSettings
from fairlead_process.policies import installed_policies
from fairlead_process.process_metrics import MetricsPage, count_log_lines
from fairlead_process.starting import begin, bind, one_line_errors
from fairlead_serve.metrics import SourceMetrics
from fairlead_serve.probing import HealthWatch, Prober
from fairlead_serve.source import PoolSource, run
from fairlead_serve.state_files import StateFiles

CONNECTIONS = 64
"""Maximum number of connections to the port of the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Settings of the source: the operator's settings that apply without Kubernetes."""

    control_plane: ControlPlaneSettings = field(metadata=group(ControlPlaneSettings))
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


def read_settings(environment: Mapping[str, str]) -> SourceSettings:
    """Return the settings from environment variables. Raises InvalidInput, which names the variable."""
    return read(SourceSettings, environment)


@click.command()
@click.option("--state-dir", type=click.Path(path_type=Path), required=True)
@click.option("--file", "file", type=click.Path(path_type=Path), required=True)
@click.option("--metrics-port", type=click.IntRange(0, 65535), required=True, help="Port of /metrics on 127.0.0.1; 0 takes a free one.")
def main(state_dir: Path, file: Path, metrics_port: int) -> None:
    """Report the engines of a file to the control API until stopped."""
    with one_line_errors("serve"):
        settings = begin(read_settings)
        listener = bind("--metrics-port", "127.0.0.1", metrics_port)
        asyncio.run(_run(settings, StateFiles(root=state_dir, pool_file=file), listener))


async def _run(settings: SourceSettings, files: StateFiles, listener: socket.socket) -> None:
    changed, prober, metrics = asyncio.Event(), Prober(), SourceMetrics()
    count_log_lines(metrics.registry)
    watch = HealthWatch(prober, changed)
    place = settings.control_plane
    page = serving_beside(MetricsPage(metrics.registry), listener, Door(CONNECTIONS), "metrics")
    async with SystemApi(place.urls, place.token, timeout_seconds=place.timeout_seconds) as api, page:
        source = PoolSource(files, api, watch, installed_policies(), SteadyClock(), metrics)
        await source.step()
        print("ready", flush=True)
        running = asyncio.create_task(run(source, changed))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            pass
        finally:
            await watch.close()
            await prober.close()


if __name__ == "__main__":
    run_program(main, "python -m fairlead_serve.source_process")
