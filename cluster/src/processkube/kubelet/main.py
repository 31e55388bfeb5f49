"""Runs the kubelet: `python -m processkube.kubelet.main --kubeconfig F --state-dir D [--node NAME]`.

It prints `ready NODE` once the node is registered. On SIGTERM or SIGINT it takes the node down and ends the processes
of all pods. If the kubelet is killed, its pods continue to run, and the next kubelet with the same state directory
takes them over.
"""

import asyncio
import signal
import sys
from pathlib import Path

import click

from processkube.kubeconfig import read_kubeconfig
from processkube.kubelet import state_file
from processkube.kubelet.agent import NodeAgent
from processkube.kubelet.enclosing import can_enclose
from processkube.kubelet.images import BUILT_IN, Catalogue, load_catalogue
from processkube.kubelet.node import claim_addresses, keep_registered
from processkube.kubelet.pods_api import PodsApi
from processkube.kubelet.preparation import Installation, Preparation
from processkube.kubelet.runtime import ProcessRuntime
from processkube.kubernetes_client import KubernetesClient
from processkube.starting import log_options, one_line_errors

SHUTDOWN_GRACE_SECONDS = 2.0
DEFAULT_NODE = "sandbox"


async def serve(kubeconfig: Path, state_dir: Path, node: str, images: Catalogue, inherited: tuple[str, ...]) -> None:
    """Run until SIGTERM or SIGINT. Raises ProcesskubeError if the kubelet cannot start."""
    connection = read_kubeconfig(kubeconfig)
    logs = state_dir / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    memory_path = state_dir / "kubelet.json"
    memory = state_file.load(memory_path)
    number, health_server = await claim_addresses(memory.address_node)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    runtime = ProcessRuntime(logs, inherited=inherited)
    async with health_server, KubernetesClient(connection) as client:
        cluster = PodsApi(client, node)
        installation = Installation(
            node=node,
            python=sys.executable,
            images=images,
            state_dir=state_dir,
            server=connection.server,
            authority=connection.authority,
            can_enclose=await asyncio.to_thread(can_enclose),
        )
        agent = NodeAgent(
            node=node,
            cluster=cluster,
            runtime=runtime,
            preparation=Preparation(cluster, installation),
            memory=memory,
            memory_path=memory_path,
            address_node=number,
        )
        work = [
            asyncio.create_task(keep_registered(cluster, node, lambda: print(f"ready {node}", flush=True))),
            asyncio.create_task(agent.follow_node()),
            asyncio.create_task(agent.follow()),
            asyncio.create_task(agent.save_memory()),
            asyncio.create_task(cluster.send_events()),
            asyncio.create_task(runtime.bound_logs()),
        ]
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({*work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*work, stopping):
            task.cancel()
        await agent.end_all(SHUTDOWN_GRACE_SECONDS)
        for task in done - {stopping}:
            task.result()  # none of them returns: this raises the error that ended it


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True, help="Kubeconfig with the cluster and the kubelet's account.")
@click.option("--state-dir", type=click.Path(path_type=Path), required=True, help="Folder for the pods' logs and the node's state.")
@click.option("--node", default=DEFAULT_NODE, show_default=True, help="The node's name.")
@click.option("--images", metavar="MODULE:NAME", help="Catalogue of the images that pods can have; default: only `python`.")
@click.option(
    "--inherit", metavar="VARIABLE", multiple=True, help="Environment variable of the kubelet that containers get, too. Repeatable."
)
@log_options
def main(
    kubeconfig: Path, state_dir: Path, node: str, images: str | None, inherit: tuple[str, ...], log_level: str, log_format: str
) -> None:
    """Run a cluster's pods as processes of this machine."""
    with one_line_errors("kubelet", log_level=log_level, log_format=log_format):
        catalogue = load_catalogue(images) if images else BUILT_IN
        asyncio.run(serve(kubeconfig, state_dir.absolute(), node, catalogue, inherit))


if __name__ == "__main__":
    main(prog_name="python -m processkube.kubelet.main")
