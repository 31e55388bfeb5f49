"""`python -m fairlead_web.main --host H --port P`: the web UI alone, in front of a control API reached over the
network; settings from the environment.
"""

import click

from fairlead_process.commands import run_program
from fairlead_process.doors import Door, DoorPlan, take_files
from fairlead_process.http_connections import http_server
from fairlead_process.starting import begin, bind, one_line_errors
from fairlead_web.app import create_web_app
from fairlead_web.frame.settings import read_settings

CONNECTIONS = 2048
"""Browsers' connections; each may need one to the control API."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8090, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
def main(host: str, port: int) -> None:
    """Serve the web UI alone."""
    with one_line_errors("web"):
        settings = begin(read_settings)
        listener = bind("--host/--port", host, port)
        url = settings.public_url or f"http://{host}:{listener.getsockname()[1]}"
        app = create_web_app(None, settings.api_urls, url, links=settings.links, clusters=settings.clusters)
        door = Door(take_files(DoorPlan(name="pages", wanted=CONNECTIONS, files=2))["pages"])
        http_server(app, door, timeout_graceful_shutdown=2).run(sockets=[listener])


if __name__ == "__main__":
    run_program(main, "python -m fairlead_web.main")
