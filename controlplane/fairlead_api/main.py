"""The control API's process, without the web UI: `python -m fairlead_api.main --host H --port P`, settings from the environment."""

import os

import click

from fairlead.errors import InvalidInput
from fairlead_api.app import create_api
from fairlead_api.serving import Place, serve, stop, where_to_serve
from fairlead_api.settings import from_environment


@click.command()
@where_to_serve
def main(place: Place) -> None:
    """Serve the control API alone; `fairlead api` serves it with the web UI."""
    try:
        serve(from_environment(os.environ), place, lambda settings, _: create_api(settings))
    except InvalidInput as error:
        stop(str(error))


if __name__ == "__main__":
    main(prog_name="python -m fairlead_api.main")
