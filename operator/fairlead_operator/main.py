"""The operator's process: `python -m fairlead_operator.main`, or `kopf run -m fairlead_operator.main`."""

import click
import kopf

from fairlead_operator.handlers import children, instances, lifecycle, pools
from fairlead_operator.settings import read_settings
from fairlead_process.starting import begin, one_line_errors

__all__ = ["children", "instances", "lifecycle", "main", "pools"]


@click.command()
def main() -> None:
    """Run the Kubernetes operator until told to stop. Exit code 2 and one line for settings that cannot be used."""
    with one_line_errors("operator"):
        settings = begin(read_settings)
        kopf.run(clusterwide=not settings.namespaces, namespaces=settings.namespaces, standalone=True)


if __name__ == "__main__":
    main(prog_name="python -m fairlead_operator.main")
