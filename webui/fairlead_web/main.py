"""The process of the web UI without the control API: `python -m fairlead_web.main --host H --port P`. It calls a
control API over the network. Settings come from the environment.
"""

import asyncio
import contextlib
import logging
import socket

import click

from fairlead_process.commands import run_program
from fairlead_process.doors import Door, DoorPlan, take_files
from fairlead_process.http_connections import HttpServer, http_server, serving_beside
from fairlead_process.process_metrics import MetricsPage, count_log_lines
from fairlead_process.starting import begin, bind, one_line_errors
from fairlead_web.app import create_web_app
from fairlead_web.frame.metrics import WebMetrics
from fairlead_web.frame.settings import read_settings

CONNECTIONS = 2048
"""Maximum number of connections of browsers. Each may need a connection to the control API."""

OPERATORS = DoorPlan(name="operators", wanted=64)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8090, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--admin-host", default="127.0.0.1", show_default=True, help="Where /metrics is served.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Port of /metrics; 0 takes a free one. Default: /metrics is not served.")
def main(host: str, port: int, admin_host: str, admin_port: int | None) -> None:
    """Serve the web UI without the control API."""
    with one_line_errors("web"):
        settings = begin(read_settings)
        listener = bind("--host/--port", host, port)
        admin = None if admin_port is None else bind("--admin-host/--admin-port", admin_host, admin_port)
        metrics = WebMetrics()
        count_log_lines(metrics.registry)
        public_url = settings.public_url or f"http://{host}:{listener.getsockname()[1]}"
        app = create_web_app(None, settings.api_urls, public_url, links=settings.links, clusters=settings.clusters, metrics=metrics)
        files = take_files(DoorPlan(name="pages", wanted=CONNECTIONS, files=2), OPERATORS)
        server = http_server(app, Door(files["pages"]), timeout_graceful_shutdown=2)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_serve(server, listener, admin, metrics, Door(files[OPERATORS.name])))


async def _serve(server: HttpServer, listener: socket.socket, admin: socket.socket | None, metrics: WebMetrics, door: Door) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if admin is not None:
            await stack.enter_async_context(serving_beside(MetricsPage(metrics.registry), admin, door, "admin"))
            host, port = admin.getsockname()[:2]
            logging.getLogger(__name__).info("metrics", extra={"url": f"http://{host}:{port}/metrics"})
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    run_program(main, "python -m fairlead_web.main")
