"""The process of the control API and the web UI: `python -m fairlead_host --host H --port P`, or `fairlead api`.

Settings come from the environment: those of the control API, FAIRLEAD_PUBLIC_URL (default: the address it listens on), and FAIRLEAD_WEB=0 to leave
the web UI out. Whatever makes a start impossible ends it with one line and exit code 1.
"""

import os

import click
from starlette.types import ASGIApp

from fairlead.errors import InvalidInput
from fairlead_api.app import create_api
from fairlead_api.serving import Place, serve, stop, where_to_serve
from fairlead_api.settings import Settings, from_environment, switch
from fairlead_host.app import create_app


@click.command()
@where_to_serve
def main(place: Place) -> None:
    """Serve the control API and, unless FAIRLEAD_WEB=0, the web UI."""

    def app(settings: Settings, url: str) -> ASGIApp:
        return create_app(settings, public_url or url) if web else create_api(settings)

    try:
        web, public_url = switch(os.environ, "FAIRLEAD_WEB", default=True), os.environ.get("FAIRLEAD_PUBLIC_URL")
        serve(from_environment(os.environ), place, app)
    except InvalidInput as error:
        stop(str(error))


if __name__ == "__main__":
    main(prog_name="python -m fairlead_host")
