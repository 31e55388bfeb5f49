"""The control API's process: `python -m fairlead_api.main --host H --port P`, settings from the environment.

Whatever makes a start impossible (a bad setting, a database that does not answer, a taken port) ends it with one line and exit code 1.
"""

import logging
import os
import socket
import sys
import time
from dataclasses import replace
from typing import NoReturn

import click
import psycopg
import uvicorn

from fairlead.errors import FairleadError
from fairlead_api.app import create_app
from fairlead_api.logs import configure
from fairlead_api.settings import from_environment
from fairlead_api.store.upgrading import upgrade

_LOOPBACK = ("127.", "localhost", "::1")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--wait-for-database", default=10.0, show_default=True, help="Seconds to wait for the database at start.")
def main(host: str, port: int, wait_for_database: float) -> None:
    """Serve the control API and, unless FAIRLEAD_WEB=0, the web UI."""
    try:
        settings = from_environment(os.environ)
    except FairleadError as error:
        _stop(str(error))
    configure(settings.log_format)
    if settings.auth_mode == "none" and not host.startswith(_LOOPBACK):
        _stop(f"FAIRLEAD_AUTH_MODE: 'none' cannot be used with --host {host}; listen on 127.0.0.1 or set bootstrap tokens")
    _await_database(settings.database_url, wait_for_database)
    if settings.migrate:
        upgrade(settings.database_url)
    listener = _bind(host, port)
    config = uvicorn.Config(
        create_app(replace(settings, migrate=False, public_url=settings.public_url or f"http://{host}:{listener.getsockname()[1]}")),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=75,
        server_header=False,
        h11_max_incomplete_event_size=64 * 1024,
    )
    logging.getLogger(__name__).info("control API listening", extra={"url": f"http://{host}:{listener.getsockname()[1]}"})
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    if not server.started:
        sys.exit(1)


def _await_database(url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1), connect_timeout=5).close()
            return
        except psycopg.Error as error:
            if time.monotonic() >= deadline:
                reason = str(error).strip().splitlines()[-1].strip()
                _stop(f"FAIRLEAD_DATABASE_URL: the database does not answer ({reason}); start Postgres or correct the URL")
            time.sleep(0.2)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        _stop(f"--port {port}: cannot listen on {host}:{port} ({error.strerror or error}); choose another with --port")
    return listener


def _stop(line: str) -> NoReturn:
    click.echo(f"fairlead api: {line}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
