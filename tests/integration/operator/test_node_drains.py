"""`kubectl drain NODE`, unmodified, empties a node of a pool's instances."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.pod_phases import bind

KUBECTL = shutil.which("kubectl")
NODE = "/api/v1/nodes/to-be-emptied"


@pytest.fixture
def node(stage: Stage) -> Iterator[str]:
    """Yield a ready node; a real cluster makes the pods of other nodes unready."""
    name = NODE.rpartition("/")[2]
    stage.client.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    stage.phases.beat(name)
    stage.phases.nodes.add(name)
    yield name
    stage.phases.nodes.discard(name)
    stage.client.call("DELETE", NODE, {})


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")
def test_kubectl_drains_a_node_and_the_instances_it_evicts_are_drained_and_replaced(
    stage: Stage, node: str, kubeconfig: str, tmp_path: Path
) -> None:
    stage.apply("housed", replicas=3, routing={"warming": {"duration": "0s"}})
    stage.settle("housed", 3)
    *leaving, staying = sorted(stage.names("housed"))
    for name in leaving:
        bind(stage.client, name, node)
    stage.phases.ends = False

    def told_draining() -> set[str]:
        state = stage.told_state("default/housed")
        return {item.id for item in state.instances if item.state == "Draining"} if state is not None else set()

    def serving() -> int:
        pods = [pod for pod in stage.pods("housed") if not pod["metadata"].get("deletionTimestamp")]
        return sum(1 for pod in pods if (pod.get("status") or {}).get("podIP"))

    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": kubeconfig}
    with (tmp_path / "kubectl.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen([str(KUBECTL), "drain", node, "--timeout=240s"], env=environment, stdout=log, stderr=subprocess.STDOUT)
        fewest = 3

        def both_are_told() -> bool:
            nonlocal fewest
            fewest = min(fewest, serving())
            return told_draining() >= set(leaving)

        try:
            eventually(both_are_told, "the routers are told of each that leaves, while it ends")
            assert fewest >= 2, "the budget holds"
            stage.phases.ends = True
            assert process.wait(PATIENCE_SECONDS) == 0, "kubectl waits until they are gone"
        finally:
            process.kill()
            process.wait()
            log.seek(0)
            said = log.read()
            print(said)
    assert stage.client.call("GET", NODE)["spec"]["unschedulable"] is True
    stage.settle("housed", 3)
    assert staying in stage.names("housed")
    assert not stage.names("housed") & set(leaving)
