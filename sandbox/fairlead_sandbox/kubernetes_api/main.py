"""Runs the server as a process: `python -m fairlead_sandbox.kubernetes_api.main --state-dir DIR`."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlead_sandbox.kubernetes_api.serving.private_files import write_private
from fairlead_sandbox.kubernetes_api.serving.server import AddressInUse, running_server


class StateInUse(RuntimeError):
    """Another server works on this state directory."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fairlead_sandbox.kubernetes_api.main", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True, help="folder for objects, certificates and kubeconfigs")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes the port of last time, or a free one (default)")
    return parser.parse_args(arguments)


async def serve(state_dir: Path, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT. Raises AddressInUse."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kept = state_dir / "port"
    wanted = port or _kept_port(kept)
    async with running_server(state_dir, host=host, port=wanted) as server:
        write_private(kept, server.url.rsplit(":", 1)[1].encode())
        print(f"ready {server.url}", flush=True)
        await stop.wait()


def _kept_port(file: Path) -> int:
    text = file.read_text(encoding="ascii").strip() if file.exists() else ""
    return int(text) if text.isdigit() else 0


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """Only one server may write a store; the lock goes with the process, however it ends."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUse(f"--state-dir {state_dir} is in use by another server; stop it or choose another folder") from error
        yield


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    try:
        with _locked(options.state_dir):
            asyncio.run(serve(options.state_dir, options.host, options.port))
    except (AddressInUse, StateInUse, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
