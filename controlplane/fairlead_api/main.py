"""The control API's process without the web UI: `python -m fairlead_api.main --host H --port P`.

Settings come from the environment.
"""

import click

from fairlead_api.app import create_api
from fairlead_api.serving import Place, serve, where_to_serve
from fairlead_api.settings import read_settings
from fairlead_process.commands import run_program
from fairlead_process.starting import begin, one_line_errors


@click.command()
@where_to_serve
def main(place: Place) -> None:
    """Serve the control API without the web UI. The command `fairlead api` serves the API together with the web UI."""
    with one_line_errors("api"):
        serve(begin(read_settings), place, lambda settings, _, ports: create_api(settings, ports=ports))


if __name__ == "__main__":
    run_program(main, "python -m fairlead_api.main")
