"""Every program of Fairlead: the commands below `fairlead`, and what `python -m` runs."""

from collections.abc import Iterator

import click

from fairlead_api import main as api
from fairlead_api import migrating
from fairlead_cli.subcommands import SUBCOMMANDS
from fairlead_host import __main__ as host
from fairlead_serve import api_process, source_process
from fairlead_web import main as web

MODULES: dict[str, click.Command] = {
    "python -m fairlead_api.main": api.main,
    "python -m fairlead_api.migrating": migrating.main,
    "python -m fairlead_host": host.main,
    "python -m fairlead_serve.api_process": api_process.main,
    "python -m fairlead_serve.source_process": source_process.main,
    "python -m fairlead_web.main": web.main,
}
"""Programs that are no command of `fairlead`."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with what is written to run it; groups are left out."""
    waiting = [(f"fairlead {name}", found.load()) for name, found in SUBCOMMANDS.items()] + list(MODULES.items())
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{path} {name}", inner) for name, inner in command.commands.items()]
        else:
            yield path, command
