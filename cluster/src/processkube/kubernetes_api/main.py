"""Runs the server: `python -m processkube.kubernetes_api.main --state-dir DIR`."""

from __future__ import annotations

import asyncio
import fcntl
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from processkube.errors import ProcesskubeError
from processkube.kubernetes_api.collecting.grace_periods import GRACE_SECONDS
from processkube.kubernetes_api.serving.server import running_server
from processkube.private_files import write_private
from processkube.starting import log_options, one_line_errors


class StateInUse(ProcesskubeError):
    """Raised when another server uses the same state directory."""


async def serve(state_dir: Path, host: str, port: int, node_grace_seconds: float, service_accounts: tuple[str, ...]) -> None:
    """Serve until SIGTERM or SIGINT. Raises InvalidInput for an address on which the server cannot listen."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kept = state_dir / "port"
    wanted = port or _kept_port(kept)
    running = running_server(state_dir, host=host, port=wanted, node_grace_seconds=node_grace_seconds, service_accounts=service_accounts)
    async with running as server:
        write_private(kept, server.url.rsplit(":", 1)[1].encode())
        print(f"ready {server.url}", flush=True)
        await stop.wait()


def _kept_port(file: Path) -> int:
    text = file.read_text(encoding="ascii").strip() if file.exists() else ""
    return int(text) if text.isdigit() else 0


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """Hold the lock of the store within the block, because only one server may write the store. The lock is also
    released when the process ends.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUse(f"--state-dir {state_dir} is in use by another server; stop it or choose another folder") from error
        yield


def _places(_context: click.Context, _parameter: click.Parameter, places: tuple[str, ...]) -> tuple[str, ...]:
    for place in places:
        if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", place):
            raise click.BadParameter(f"{place!r} is not a service account; write namespace/name")
    return places


@click.command()
@click.option("--state-dir", type=click.Path(path_type=Path), required=True, help="Folder for objects, certificates and kubeconfigs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=0, help="Port to listen on. 0, the default: the port used last time, or a free one.")
@click.option(
    "--node-grace-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=GRACE_SECONDS,
    show_default=True,
    help="Seconds of silence after which a node is lost.",
)
@click.option(
    "--service-account",
    "service_accounts",
    metavar="NAMESPACE/NAME",
    multiple=True,
    callback=_places,
    help="Service account that may do everything, and gets its own kubeconfig. Repeatable.",
)
@log_options
def main(
    state_dir: Path, host: str, port: int, node_grace_seconds: float, service_accounts: tuple[str, ...], log_level: str, log_format: str
) -> None:
    """Serve a Kubernetes API."""
    with one_line_errors("kubernetes-api", log_level=log_level, log_format=log_format), _locked(state_dir):
        asyncio.run(serve(state_dir, host, port, node_grace_seconds, service_accounts))


if __name__ == "__main__":
    main(prog_name="python -m processkube.kubernetes_api.main")
