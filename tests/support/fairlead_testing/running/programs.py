"""Every program of Fairlead: the subcommands of `fairlead`, and the modules that `python -m` runs."""

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
"""The programs that are not subcommands of `fairlead`."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that run it; groups of commands are left out."""
    waiting = [(f"fairlead {name}", found.load()) for name, found in SUBCOMMANDS.items()] + list(MODULES.items())
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{path} {name}", inner) for name, inner in command.commands.items()]
        else:
            yield path, command
