"""One pod under virtual time: a small world that does what `decide` says and answers its probes."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processkube.identities import ProcessIdentity
from processkube.kubelet.container_states import (
    ContainerState,
    PodState,
    after_adoption,
    after_answer,
    after_exit,
    after_refusal,
    after_start,
)
from processkube.kubelet.deciding import (
    AskProbe,
    FinishDeletion,
    KillContainer,
    StartContainer,
    StopContainer,
    decide,
    restarts_allowed,
)
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.probe_specs import ProbeSpec
from processkube.kubelet.statuses import pod_status
from processkube.testing.examples import examples

READINESS = ProbeSpec(port=8000, path="/health", period=1.0, failure_threshold=3)
LIVENESS = ProbeSpec(port=8000, path="/health", period=5.0, failure_threshold=2)
STARTUP = ProbeSpec(port=8000, path="/health", period=1.0, failure_threshold=10)


def a_pod(container: ContainerSpec | None = None, **fields: object) -> PodSpec:
    container = container or ContainerSpec(name="engine", image="acme/engine", readiness=READINESS)
    pod = PodSpec(uid="u1", namespace="default", name="chat-b1", node="sandbox", containers=(container,), grace_seconds=10.0)
    return replace(pod, **fields)  # type: ignore[arg-type]  # test builder


@dataclass
class World:
    """Runs one pod. `healthy` is what probes hear; `obedient` processes end one second after SIGTERM."""

    pod: PodSpec = field(default_factory=a_pod)
    healthy: bool = True
    obedient: bool = True
    now: float = 100.0
    starts: list[float] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    finished: bool = False

    def __post_init__(self) -> None:
        self.state = PodState(
            uid="u1", namespace="default", name="chat-b1", ip="127.40.0.1", start_time="t", containers=(ContainerState(name="engine"),)
        )
        self._ends_at: float | None = None

    @property
    def engine(self) -> ContainerState:
        return self.state.containers[0]

    @property
    def ready(self) -> bool:
        return self.engine.ready

    def crash(self, exit_code: int = 1, signal: int = 0) -> None:
        allowed = restarts_allowed(self.pod, self.engine.name, exit_code=exit_code, signal=signal)
        self._ends_at = None
        self.state = self.state.with_container(
            after_exit(
                self.engine, exit_code=exit_code, signal=signal, message="", restarts_allowed=allowed, stamp=f"t{self.now}", now=self.now
            )
        )

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while not self.finished:
            if self._ends_at is not None and self._ends_at <= self.now:
                self.crash(exit_code=0)
            decision = decide(self.pod, self.state, self.now)
            for action in decision.actions:
                self._do(action)
            if decision.actions:
                continue
            wake = min(decision.wake_at, self._ends_at or until, until)
            assert wake > self.now or wake == until, "a decision without actions must sleep"
            if wake >= until:
                self.now = until
                return
            self.now = wake

    def _do(self, action: object) -> None:
        self.did.append(type(action).__name__)
        spec = self.pod.containers[0]
        match action:
            case StartContainer():
                self.starts.append(self.now)
                process = ProcessIdentity(pid=1000 + len(self.starts), started_ticks=int(self.now))
                self.state = self.state.with_container(after_start(self.engine, spec, process=process, stamp=f"t{self.now}", now=self.now))
            case AskProbe(probe=probe):
                answered = after_answer(self.engine, spec, probe, ok=self.healthy, detail="answered 503", now=self.now)
                self.state = self.state.with_container(answered)
            case StopContainer():
                self.state = self.state.with_container(replace(self.engine, stop_at=self.now))
                self._ends_at = self.now + 1.0 if self.obedient else None
            case KillContainer():
                self.crash(signal=9)
            case FinishDeletion():
                self.finished = True


def test_a_new_pod_is_started_at_once_and_ready_after_its_first_good_answer() -> None:
    world = World()
    world.run(0.5)
    assert world.starts == [100.0]
    assert world.ready


def test_a_container_without_probes_is_ready_when_it_runs() -> None:
    world = World(pod=a_pod(ContainerSpec(name="engine", image="acme/engine")))
    world.run(0.1)
    assert world.ready


def test_readiness_is_lost_only_after_the_failure_threshold_and_won_back_at_once() -> None:
    world = World()
    world.run(2.5)
    world.healthy = False
    world.run(2.0)
    assert world.ready, "two bad answers of three"
    world.run(1.0)
    assert not world.ready
    assert world.starts == [100.0], "unready is no reason to restart"
    world.healthy = True
    world.run(1.0)
    assert world.ready


def test_a_crashed_container_is_started_again_with_growing_pauses() -> None:
    world = World()
    pauses = []
    for _ in range(5):
        world.run(0.2)
        world.crash()
        crashed_at = world.now
        world.run(61.0)
        pauses.append(world.starts[-1] - crashed_at)
        world.now -= 61.0 - pauses[-1]  # as if it crashed again right after the start
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert world.engine.restarts == 5


def test_back_off_is_forgotten_after_a_long_good_run() -> None:
    world = World()
    for _ in range(3):
        world.run(0.2)
        world.crash()
        world.run(70.0)
    assert world.starts[-1] - world.starts[-2] < 71.0
    assert world.engine.backoff.failures == 1


def test_a_failed_liveness_probe_restarts_the_container() -> None:
    world = World(pod=a_pod(ContainerSpec(name="engine", image="acme/engine", liveness=LIVENESS)))
    world.run(1.0)
    world.healthy = False
    world.run(5.0)
    assert "StopContainer" not in world.did, "one bad answer of two"
    world.run(6.0)
    assert world.did.count("StopContainer") == 1
    world.run(2.0)
    assert len(world.starts) == 2
    assert world.engine.last is not None
    assert "probe failed: answered 503" in world.engine.last.message


def test_a_slow_start_is_spared_by_the_startup_probe_until_it_gives_up() -> None:
    probes = ContainerSpec(name="engine", image="acme/engine", startup=STARTUP, liveness=LIVENESS, readiness=READINESS)
    world = World(pod=a_pod(probes), healthy=False)
    world.run(8.5)
    assert world.starts == [100.0]
    assert not world.engine.started
    world.healthy = True
    world.run(1.0)
    assert world.ready
    never = World(pod=a_pod(probes), healthy=False)
    never.run(13.0)
    assert len(never.starts) == 2, "ten bad answers: restarted"


def test_a_deleted_pod_is_asked_to_stop_and_then_gone() -> None:
    world = World()
    world.run(5.0)
    world.pod = replace(world.pod, deletion_at=110.0)
    world.run(30.0)
    assert world.finished
    assert world.now == pytest.approx(106.0)
    assert "KillContainer" not in world.did
    assert len(world.starts) == 1


def test_a_deleted_pod_that_does_not_listen_is_killed_after_its_grace() -> None:
    world = World(obedient=False)
    world.run(5.0)
    world.pod = replace(world.pod, deletion_at=110.0)
    world.run(9.9)
    assert not world.finished
    world.run(0.2)
    assert world.finished
    assert world.did.count("KillContainer") == 1


def test_a_pod_deleted_before_it_started_is_never_started() -> None:
    world = World(pod=a_pod(deletion_at=100.0))
    world.run(1.0)
    assert world.finished
    assert world.starts == []


def test_readiness_is_still_asked_while_the_pod_stops_but_liveness_is_not() -> None:
    probes = ContainerSpec(name="engine", image="acme/engine", liveness=LIVENESS, readiness=READINESS)
    world = World(pod=a_pod(probes), obedient=False)
    world.run(1.0)
    world.pod = replace(world.pod, deletion_at=110.0)
    world.healthy = False
    world.run(5.0)
    assert not world.ready
    assert world.engine.liveness is not None
    assert world.engine.liveness.failures == 0


@pytest.mark.parametrize(
    ("policy", "exit_code", "starts", "phase"),
    [
        ("Always", 0, 2, "Running"),
        ("OnFailure", 0, 1, "Succeeded"),
        ("OnFailure", 1, 2, "Running"),
        ("Never", 0, 1, "Succeeded"),
        ("Never", 7, 1, "Failed"),
    ],
)
def test_the_restart_policy_decides_what_an_exit_means(policy: str, exit_code: int, starts: int, phase: str) -> None:
    world = World(pod=a_pod(restart_policy=policy))
    world.run(2.0)
    world.crash(exit_code=exit_code)
    world.run(5.0)
    assert len(world.starts) == starts
    assert pod_status(world.pod, world.state, {}, "now", live={})["phase"] == phase


def test_a_refused_container_is_tried_again_but_not_at_once() -> None:
    world = World()
    refused = after_refusal(world.engine, reason="ErrImagePull", message="no such image", now=world.now)
    world.state = world.state.with_container(refused)
    world.run(4.9)
    assert world.starts == []
    waiting = pod_status(world.pod, world.state, {}, "now", live={})["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ErrImagePull", "message": "no such image"}
    world.run(1.0)
    assert len(world.starts) == 1


def test_an_adopted_container_keeps_its_verdict_and_is_asked_at_once() -> None:
    world = World()
    world.run(0.5)
    world.state = world.state.with_container(after_adoption(world.engine, now=3.0))
    world.now = 3.0
    assert world.ready
    assert AskProbe(container="engine", probe="readiness") in decide(world.pod, world.state, 3.0).actions


@examples(60)
@example(history=["wait", "crash", "crash", "sick", "wait", "wait"], policy="Always", obedient=True)
@given(
    st.lists(st.sampled_from(["wait", "crash", "sick", "well", "delete"]), max_size=25),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.booleans(),
)
def test_any_history_ends_with_nothing_running_once_the_pod_is_deleted(history: list[str], policy: str, obedient: bool) -> None:
    probes = ContainerSpec(name="engine", image="acme/engine", startup=STARTUP, liveness=LIVENESS, readiness=READINESS)
    world = World(pod=a_pod(probes, restart_policy=policy), obedient=obedient)
    for event in [*history, "delete"]:
        if event == "crash" and world.engine.process is not None:
            world.crash()
        elif event in {"sick", "well"}:
            world.healthy = event == "well"
        elif event == "delete":
            world.pod = replace(world.pod, deletion_at=world.now)
        world.run(3.0)
        assert not (world.ready and world.engine.process is None)
    world.run(15.0)
    assert world.finished
    assert world.engine.process is None


def test_init_containers_run_one_after_the_other_before_the_others() -> None:
    first, second = (ContainerSpec(name=name, image="acme/api") for name in ("first", "second"))
    pod = a_pod(init_containers=(first, second))
    state = PodState(
        uid="u1",
        namespace="default",
        name="chat-b1",
        ip="127.40.0.1",
        start_time="t",
        containers=tuple(ContainerState(name=name) for name in ("first", "second", "engine")),
    )
    started = []
    for name in ("first", "second", "engine"):
        started += [action.container for action in decide(pod, state, 0.0).actions if isinstance(action, StartContainer)]
        assert pod_status(pod, state, {}, "t", live={})["phase"] == "Pending"
        running = after_start(
            state.container(name), pod.every_container[0], process=ProcessIdentity(pid=1, started_ticks=1), stamp="t", now=0.0
        )
        state = state.with_container(running)
        allowed = restarts_allowed(pod, name, exit_code=0, signal=0)
        assert allowed == (name == "engine")
        ended = after_exit(running, exit_code=0, signal=0, message="", restarts_allowed=allowed, stamp="t", now=0.0)
        state = state.with_container(ended)
    assert started == ["first", "second", "engine"]


def test_a_stop_hook_that_a_kubelet_left_unfinished_begins_again() -> None:
    world = World()
    world.run(2.0)
    world.pod = replace(world.pod, deletion_at=110.0)
    hooked = replace(world.engine, stop_at=world.now, hook_runs=True)
    step = decide(world.pod, world.state.with_container(hooked), world.now)
    assert not any(isinstance(action, StopContainer) for action in step.actions)
    adopted = world.state.with_container(after_adoption(hooked, world.now))
    assert StopContainer in {type(action) for action in decide(world.pod, adopted, world.now).actions}
