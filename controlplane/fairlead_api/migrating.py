"""Migrates the database's schema to the newest version and exits: `python -m fairlead_api.migrating`, before newer
processes start.

The control API does the same when it starts unless FAIRLEAD_MIGRATE=0.
"""

from collections.abc import Mapping

import click

from fairlead_api.infra.upgrading import heads, upgrade
from fairlead_api.serving import await_database
from fairlead_api.settings import DatabaseSettings
from fairlead_process.commands import run_program
from fairlead_process.environment import read
from fairlead_process.option_types import NumberOption
from fairlead_process.starting import begin, one_line_errors


def read_settings(environment: Mapping[str, str]) -> DatabaseSettings:
    """Return the settings from environment variables. Raises InvalidInput for a missing or invalid variable."""
    return read(DatabaseSettings, environment)


@click.command()
@click.option("--wait-for-database", type=NumberOption(), default=60.0, show_default=True, help="Seconds to wait for the database.")
def main(wait_for_database: float) -> None:
    """Migrate the database. Safe to repeat; if another process is migrating the database, waits for it."""
    with one_line_errors("migrations"):
        settings = begin(read_settings)
        await_database(settings.url, wait_for_database)
        upgrade(settings.url)
        click.echo(f"the database is at {heads()}")


if __name__ == "__main__":
    run_program(main, "python -m fairlead_api.migrating")
