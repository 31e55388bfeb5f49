"""Runs the sandbox's commands without the rest of `fairlead`: `python -m fairlead_sandbox up …`.

`up --detach` starts its supervisor this way.
"""

import click

from fairlead_process.commands import run_program
from fairlead_sandbox import commands


@click.group()
def sandbox() -> None:
    """Fairlead on one machine."""


for _command in (commands.up, commands.status, commands.logs, commands.login, commands.down):
    sandbox.add_command(_command)

if __name__ == "__main__":
    run_program(sandbox, "fairlead")
