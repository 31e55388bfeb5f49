"""The operator's process: `python -m fairlead_operator.main`."""

import asyncio

import click
import kopf

from fairlead.errors import InvalidInput
from fairlead_operator import handlers
from fairlead_operator.cluster import ClusterUnavailable, HttpCluster
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.settings import OperatorSettings, read_settings
from fairlead_process.commands import run_program
from fairlead_process.process_metrics import count_log_lines
from fairlead_process.starting import begin, bind, one_line_errors

__all__ = ["handlers", "main"]


@click.command()
def main() -> None:
    """Run the Kubernetes operator until a signal stops it. Exit code 2 and one line for unusable settings."""
    with one_line_errors("operator"):
        settings = begin(read_settings)
        asyncio.run(require_startable(settings))
        metrics = OperatorMetrics()
        count_log_lines(metrics.registry)
        while lead_once(settings, metrics):
            pass


async def require_startable(settings: OperatorSettings) -> None:
    """Check this machine's settings and files before kopf starts, because kopf would print each fault as three
    tracebacks.

    Raises InvalidInput, which names the setting.
    """
    try:
        await (await HttpCluster.connect(settings.kubeconfig)).close()
    except ClusterUnavailable as error:
        raise UnusableSetting(str(error)) from error
    if settings.health_port:
        bind("FAIRLEAD_OPERATOR_HEALTH_HOST/FAIRLEAD_OPERATOR_HEALTH_PORT", settings.health_host, settings.health_port).close()


class UnusableSetting(InvalidInput):
    """An unusable setting that another module has reported; its message already names the setting."""

    def __init__(self, line: str) -> None:
        super().__init__("KUBECONFIG", None, line)
        self.args = (line,)


def lead_once(settings: OperatorSettings, metrics: OperatorMetrics) -> bool:
    """Run kopf, first as a standby and then as the leader.

    Returns True if the Lease was lost and the process should become a standby again, False if a signal asked the
    process to stop.
    """
    memo = kopf.Memo(stop_flag=asyncio.Event(), is_ended=False, metrics=metrics)
    kopf.run(clusterwide=not settings.namespaces, namespaces=settings.namespaces, standalone=True, stop_flag=memo.stop_flag, memo=memo)
    return memo.stop_flag.is_set() and not memo.is_ended


if __name__ == "__main__":
    run_program(main, "python -m fairlead_operator.main")
