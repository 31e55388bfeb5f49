"""The kubelet as a process: `python -m fairlead_sandbox.kubelet.main --kubeconfig F --state-dir D [--node NAME]`.

It prints `ready NODE` once the node is registered. SIGTERM and SIGINT take the node down: every pod's process is ended. A kubelet that
is killed leaves its pods running, and the next one with the same state directory takes them over.
"""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.kubeconfig import read_kubeconfig
from fairlead_sandbox.kubelet import state_file
from fairlead_sandbox.kubelet.agent import NodeAgent
from fairlead_sandbox.kubelet.node import claim_addresses, keep_registered
from fairlead_sandbox.kubelet.pods_api import PodsApi
from fairlead_sandbox.kubelet.runtime import ProcessRuntime
from fairlead_sandbox.kubernetes_client import KubernetesClient

SHUTDOWN_GRACE_SECONDS = 2.0
DEFAULT_NODE = "sandbox"


async def serve(kubeconfig: Path, state_dir: Path, node: str) -> None:
    """Run until SIGTERM or SIGINT. Raises SandboxError when it cannot begin."""
    connection = read_kubeconfig(kubeconfig)
    logs = state_dir / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    memory_path = state_dir / "kubelet.json"
    memory = state_file.load(memory_path)
    number, health_server = await claim_addresses(memory.address_node)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    runtime = ProcessRuntime(logs)
    async with health_server, KubernetesClient(connection) as client:
        cluster = PodsApi(client, node)
        agent = NodeAgent(
            node=node, cluster=cluster, runtime=runtime, python=sys.executable, memory=memory, memory_path=memory_path, address_node=number
        )
        work = [
            asyncio.create_task(keep_registered(cluster, node, lambda: print(f"ready {node}", flush=True))),
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
            task.result()  # none of them returns: this raises what ended it


def main(arguments: list[str] | None = None) -> int:
    """Entry point; exit code 1 with one line on stderr when it cannot begin."""
    parser = argparse.ArgumentParser(prog="fairlead-kubelet", description="Run a cluster's pods as processes of this machine.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--node", default=DEFAULT_NODE)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        asyncio.run(serve(options.kubeconfig, options.state_dir, options.node))
    except SandboxError as problem:
        print(f"fairlead-kubelet: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
