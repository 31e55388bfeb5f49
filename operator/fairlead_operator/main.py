"""The operator's process: `python -m fairlead_operator.main`."""

import asyncio

import click
import kopf

from fairlead_operator import handlers
from fairlead_operator.settings import OperatorSettings, read_settings
from fairlead_process.commands import run_program
from fairlead_process.starting import begin, one_line_errors

__all__ = ["handlers", "main"]


@click.command()
def main() -> None:
    """Run the Kubernetes operator until a signal stops it. Exit code 2 and one line for unusable settings."""
    with one_line_errors("operator"):
        settings = begin(read_settings)
        while lead_once(settings):
            pass


def lead_once(settings: OperatorSettings) -> bool:
    """Run kopf, first as a standby and then as the leader.

    Returns True if the Lease was lost and the process should be a standby again, False if it was asked to stop.
    """
    memo = kopf.Memo(lease_lost=asyncio.Event())
    kopf.run(clusterwide=not settings.namespaces, namespaces=settings.namespaces, standalone=True, stop_flag=memo.lease_lost, memo=memo)
    return bool(memo.lease_lost.is_set())


if __name__ == "__main__":
    run_program(main, "python -m fairlead_operator.main")
