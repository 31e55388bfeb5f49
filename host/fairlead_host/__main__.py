"""The process of the control API and the web UI: `python -m fairlead_host --host H --port P`, or `fairlead api`.

Settings come from the environment.
"""

import click
from starlette.types import ASGIApp

from fairlead_api.app import create_api
from fairlead_api.infra.autoscaler_ports import AutoscalerPorts
from fairlead_api.serving import Place, serve, where_to_serve
from fairlead_api.settings import Settings
from fairlead_host.app import SIMULATOR, create_app
from fairlead_host.settings import read_settings
from fairlead_process.commands import run_program
from fairlead_process.starting import begin, one_line_errors


@click.command()
@where_to_serve
def main(place: Place) -> None:
    """Serve the control API and, unless FAIRLEAD_WEB=0, the web UI."""
    with one_line_errors("api"):
        settings = begin(read_settings)

        def app(api: Settings, url: str, ports: AutoscalerPorts) -> ASGIApp:
            if not settings.web:
                return create_api(api, simulator=SIMULATOR, ports=ports)
            return create_app(api, settings.public_url or url, links=settings.links, clusters=settings.clusters, ports=ports)

        serve(settings.api, place, app)


if __name__ == "__main__":
    run_program(main, "python -m fairlead_host")
