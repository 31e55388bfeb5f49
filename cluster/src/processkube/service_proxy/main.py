"""Runs the service proxy: `python -m processkube.service_proxy.main --kubeconfig F --state-dir D`.

It prints `ready NETWORK` once it follows the cluster. D must be the state directory of the kubelet.
"""

import asyncio
import signal
from pathlib import Path

import click

from processkube.kubeconfig import read_kubeconfig
from processkube.kubelet.node import claim_addresses
from processkube.kubernetes_client import KubernetesClient
from processkube.service_proxy.following import ServiceFollower
from processkube.starting import log_options, one_line_errors

FIRST_NETWORK, LAST_NETWORK = 100, 139
"""Smallest and largest N of the networks 127.N.0.0/16 for Services. Pods have other networks."""


async def serve(kubeconfig: Path, state_dir: Path) -> None:
    """Run until SIGTERM or SIGINT. Raises ProcesskubeError if the proxy cannot start."""
    number, claim = await claim_addresses(FIRST_NETWORK, FIRST_NETWORK, LAST_NETWORK)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with claim, KubernetesClient(read_kubeconfig(kubeconfig)) as client:
        follower = ServiceFollower(client, f"127.{number}", state_dir)
        work = [asyncio.create_task(one) for one in (follower.follow("services"), follower.follow("pods"), follower.serve())]
        stopping = asyncio.create_task(stop.wait())
        print(f"ready 127.{number}", flush=True)
        done, _ = await asyncio.wait({*work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*work, stopping):
            task.cancel()
        for task in done - {stopping}:
            task.result()  # none of them returns: this raises the error that ended it


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True, help="Kubeconfig with the cluster and the proxy's account.")
@click.option("--state-dir", type=click.Path(path_type=Path), required=True, help="The kubelet's state directory.")
@log_options
def main(kubeconfig: Path, state_dir: Path, log_level: str, log_format: str) -> None:
    """Let the pods of this machine reach the cluster's Services."""
    with one_line_errors("service proxy", log_level=log_level, log_format=log_format):
        asyncio.run(serve(kubeconfig, state_dir.absolute()))


if __name__ == "__main__":
    main(prog_name="python -m processkube.service_proxy.main")
