"""Serves an app of the control API: chooses the address, waits for the database, migrates the database, and runs
uvicorn.

Anything that prevents the start (a database that does not respond, a port in use) is raised as a FairleadError with a
one-line message.
"""

import gc
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps

import click
import psycopg
from starlette.types import ASGIApp

from fairlead.errors import FairleadError, InvalidInput
from fairlead_api.infra.autoscaler_ports import AutoscalerPorts, bound, plans_of
from fairlead_api.infra.connections import connected, unfit_encoding
from fairlead_api.infra.upgrading import upgrade
from fairlead_api.settings import Settings
from fairlead_process.doors import Door, DoorPlan, take_files
from fairlead_process.http_connections import http_server
from fairlead_process.option_types import NumberOption
from fairlead_process.starting import bind

COLLECTED_AFTER = (50_000, 10, 10)
"""Thresholds of Python's garbage collector: the number of new objects that causes a collection of the youngest
generation, and the numbers of such collections that cause collections of the older generations.
"""

CONNECTIONS = 4096
"""Maximum number of connections of people, routers and operators. Each may cause a further connection, for example to
the Kubernetes API.
"""

_LOOPBACK = ("127.", "localhost", "::1")


class DatabaseAway(FairleadError):
    """The database did not respond within the waiting time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The command-line options for serving: address and waiting time."""

    host: str
    port: int
    wait_for_database: float
    """Maximum seconds to wait for the database at the start."""


def where_to_serve(command: Callable[[Place], None]) -> Callable[..., None]:
    """Give a click command `--host`, `--port` and `--wait-for-database`, which are passed to it as one Place."""

    @click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
    @click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
    @click.option(
        "--wait-for-database", type=NumberOption(), default=10.0, show_default=True, help="Seconds to wait for the database at start."
    )
    @wraps(command)
    def with_place(host: str, port: int, wait_for_database: float) -> None:
        command(Place(host=host, port=port, wait_for_database=wait_for_database))

    return with_place


def serve(settings: Settings, place: Place, app: Callable[[Settings, str, AutoscalerPorts], ASGIApp]) -> None:
    """Serve until a signal ends the process. `app` makes the served app from the settings, the app's URL and the ports
    for autoscalers.

    Raises InvalidInput for an error in the settings or on the command line, DatabaseAway.
    """
    if settings.auth_mode == "none" and not place.host.startswith(_LOOPBACK):
        raise InvalidInput("FAIRLEAD_AUTH_MODE", "none", f"listen on 127.0.0.1 instead of --host {place.host}, or write bootstrap")
    await_database(settings.database_url, place.wait_for_database)
    if settings.migrate:
        upgrade(settings.database_url)
    listener = bind("--host/--port", place.host, place.port)
    listener.listen(2048)  # a client that calls while the app starts waits instead of being refused
    url = f"http://{place.host}:{listener.getsockname()[1]}"
    files = take_files(DoorPlan(name="clients", wanted=CONNECTIONS, files=2), *plans_of(settings.autoscalers))
    ports = bound(settings.autoscalers, place.host, files)
    server = http_server(app(replace(settings, migrate=False), url, ports), Door(files["clients"]), timeout_graceful_shutdown=3)
    logging.getLogger(__name__).info("control API listening", extra={"url": url})
    # A post of reports is thousands of objects and no cycle among them; to look for some at the default rate, through
    # all that lives as long as the process, cost as much as to check the rows.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    server.run(sockets=[listener])
    if not server.started:
        sys.exit(1)


def await_database(url: str, seconds: float) -> None:
    """Return once the database accepts a connection. Raises DatabaseAway after `seconds`, InvalidInput for a database
    whose encoding cannot store all texts.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            with connected(url, connect_timeout=5) as connection:
                unfit = unfit_encoding(connection.info.parameter_status("server_encoding") or "")
            if unfit is not None:
                raise InvalidInput("FAIRLEAD_DATABASE_URL", None, unfit)
            return
        except psycopg.Error as error:
            if time.monotonic() >= deadline:
                reason = str(error).strip().splitlines()[-1].strip()
                raise DatabaseAway(
                    f"FAIRLEAD_DATABASE_URL: the database does not answer ({reason}); start Postgres or correct the URL"
                ) from None
            time.sleep(0.2)
