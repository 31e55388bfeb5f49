"""Two operators at once, as a rolling update of the Deployment has them: one acts, the other takes over."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead_testing.running.operator_process import OperatorProcess, Stage, eventually, health
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fairlead-operator"


@dataclass(slots=True)
class Pair:
    """`stage.operator` was started first, `other` second; both are ready when a test begins."""

    stage: Stage
    other: OperatorProcess
    ports: tuple[int, int]

    def holder(self) -> str:
        spec: dict[str, str] = self.stage.client.call("GET", LEASE)["spec"]
        return spec["holderIdentity"]

    def states(self) -> list[str]:
        return [str((health(port, "/readyz") or (0, {"state": "away"}))[1]["state"]) for port in self.ports]


@pytest.fixture
def pair(stage: Stage, tmp_path: Path) -> Iterator[Pair]:
    """Yield two operators that use the Lease with its production duration, 10 s."""
    stage.operator.kill()
    stage.client.session.delete(f"{stage.client.server}{LEASE}", timeout=PATIENCE_SECONDS)
    ports = (free_port(), free_port())
    for number, (operator, port) in enumerate(((stage.operator, ports[0]), (other := _another(stage, tmp_path), ports[1]))):
        operator.settings |= {
            "FAIRLEAD_OPERATOR_IDENTITY": f"operator-{number}",
            "FAIRLEAD_OPERATOR_HEALTH_HOST": "127.0.0.1",
            "FAIRLEAD_OPERATOR_HEALTH_PORT": str(port),
        }
        operator.start()
        eventually(lambda port=port: (health(port, "/readyz") or (0, {}))[0] == 200, "the operator is ready")  # type: ignore[misc]
    yield Pair(stage=stage, other=other, ports=ports)
    other.stop()
    if stage.operator.process is not None and stage.operator.process.poll() is not None:
        stage.operator.start()
    print((tmp_path / "other.log").read_text(encoding="utf-8"))


def _another(stage: Stage, folder: Path) -> OperatorProcess:
    return OperatorProcess(kubeconfig=stage.operator.kubeconfig, api_url=stage.api.url, log=folder / "other.log")


@dataclass(slots=True)
class Census:
    """The most live pods of a pool and all pods seen, sampled every 30 ms."""

    most_live: int = 0
    seen: set[str] = field(default_factory=set)


@contextmanager
def census(stage: Stage, name: str) -> Iterator[Census]:
    counted, ending = Census(), threading.Event()

    def count() -> None:
        while not ending.wait(0.03):
            pods = stage.pods(name)
            counted.seen |= {pod["metadata"]["uid"] for pod in pods}
            counted.most_live = max(counted.most_live, sum(1 for pod in pods if not pod["metadata"].get("deletionTimestamp")))

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield counted
    finally:
        ending.set()
        thread.join()


def test_two_operators_never_make_more_pods_than_wanted(pair: Pair) -> None:
    stage = pair.stage
    eventually(lambda: pair.states() == ["leading", "standby"], "the first one leads")
    stage.apply("double", replicas=4)
    with census(stage, "double") as counted:
        stage.settle("double", 4)
        stage.edit("double", {"replicas": 10})
        stage.settle("double", 10)
        stage.edit("double", {"replicas": 4})
        stage.settle("double", 4)
    assert counted.most_live == 10
    assert len(counted.seen) == 10, "each instance was made once"
    assert [reason for reason in stage.told_reasons() if reason.startswith("Scaling")] == ["ScalingUp", "ScalingDown"]
    assert len(stage.marked("double")) == 0
    assert stage.told_reasons().count("Draining") == 6


def test_a_killed_leader_is_taken_over_in_the_middle_of_a_change(pair: Pair) -> None:
    stage = pair.stage
    stage.apply("inherited", replicas=2)
    stage.settle("inherited", 2)
    before = stage.names("inherited")
    stage.operator.kill()
    stage.edit("inherited", {"replicas": 3})
    with census(stage, "inherited") as counted:
        eventually(lambda: len(stage.names("inherited")) == 3, "the other one acts")
        stage.settle("inherited", 3)
    assert pair.holder() == "operator-1"
    assert before <= stage.names("inherited")
    assert (counted.most_live, len(counted.seen)) == (3, 3)


def test_a_leader_that_is_told_to_stop_is_followed_at_once(pair: Pair) -> None:
    stage = pair.stage
    stage.apply("handed", replicas=1)
    stage.settle("handed", 1)
    assert stage.operator.stop() == 0
    eventually(lambda: pair.holder() in {"", "operator-1"}, "it was released")
    eventually(lambda: pair.states()[1] == "leading", "the other one leads")
    stage.edit("handed", {"replicas": 2})
    stage.settle("handed", 2)


def test_a_leader_that_was_frozen_comes_back_as_a_standby_and_leads_again_when_asked(pair: Pair) -> None:
    stage = pair.stage
    stage.apply("thawed", replicas=1)
    stage.settle("thawed", 1)
    process = stage.operator.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: pair.holder() == "operator-1", "the other one leads")
        stage.edit("thawed", {"replicas": 3})
        with census(stage, "thawed") as counted:
            process.send_signal(signal.SIGCONT)
            stage.settle("thawed", 3)
            eventually(lambda: pair.states() == ["standby", "leading"], "it waits for its turn, in the same process")
        assert (counted.most_live, len(counted.seen)) == (3, 3)
    finally:
        process.send_signal(signal.SIGCONT)
    assert pair.other.stop() == 0
    eventually(lambda: pair.states()[0] == "leading", "it leads again")
    assert process.poll() is None
    stage.edit("thawed", {"replicas": 2})
    stage.settle("thawed", 2)
    assert stage.operator.stop() == 0, "told to stop, it ends"
