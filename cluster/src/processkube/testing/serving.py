"""A Kubernetes API server in the process of the tests."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from processkube.kubernetes_api.serving.server import RunningServer, running_server
from processkube.testing.waiting import PATIENCE_SECONDS


@contextmanager
def serving(state: Path, *, node_grace_seconds: float = 10.0, service_accounts: Sequence[str] = ()) -> Iterator[RunningServer]:
    """Run a server on a separate thread until the block ends."""
    ready = threading.Event()
    found: list[RunningServer] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with running_server(state, node_grace_seconds=node_grace_seconds, service_accounts=service_accounts) as running:
            found.append(running)
            stops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS), "the server did not come up"
    yield found[0]
    loop, stop = stops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the server did not stop"
