"""The operator's process: `python -m fairlead_operator.main`, or `kopf run -m fairlead_operator.main`."""

import logging
import os
import sys

import click
import kopf

from fairlead.errors import InvalidInput
from fairlead_operator.handlers import children, instances, lifecycle, pools
from fairlead_operator.settings import read_settings

__all__ = ["children", "instances", "lifecycle", "main", "pools"]


@click.command()
def main() -> None:
    """Run the Kubernetes operator until told to stop. Exit code 2 and one line for settings that cannot be used."""
    try:
        settings = read_settings(os.environ)
    except InvalidInput as error:
        click.echo(f"fairlead operator: {error}", err=True)
        sys.exit(2)
    kopf.configure(log_format=kopf.LogFormat.JSON if os.environ.get("FAIRLEAD_LOG_FORMAT") == "json" else kopf.LogFormat.FULL)
    for chatty in ("httpx", "kopf.activities", "kopf.objects"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    kopf.run(
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
    )


if __name__ == "__main__":
    main(prog_name="python -m fairlead_operator.main")
