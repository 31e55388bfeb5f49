"""Every condition of a living pool is driven to each of its values and back, through the reconciler.

Each step has an event and the expected condition after it: status, reason, and words of its message. The transition
time must change with the status and only then, and the observed generation must be the pool's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fairlead.conditions.facts import ConditionType
from fairlead.pool_states import InstanceTrouble, TaskObservation
from fairlead.scaling.signals import PoolDemand
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_operator.settings import PickerSettings, ServiceName
from fairlead_testing.builders.scaling import pool_signals, role_signals
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event, and the expected condition after it. `rounds` reconciliations are made in between, a second apart."""

    happens: Callable[[VirtualStage], None]
    status: str
    reason: str
    words: str
    rounds: int = 12
    kubelet: bool = True
    """Whether pods become ready."""


def status_of_pods(stage: VirtualStage, status: dict[str, Any], *, only_first: bool = True) -> None:
    for pod in stage.pods()[: 1 if only_first else None]:
        pod["status"] = status


def not_ready(stage: VirtualStage) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]
    status_of_pods(stage, {"phase": "Running", "podIP": "127.0.0.9", "conditions": conditions})


def on_a_lost_node(stage: VirtualStage) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    status_of_pods(stage, {"phase": "Running", "podIP": "127.0.0.9", "conditions": conditions})


def cannot_pull(stage: VirtualStage) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    status_of_pods(stage, {"phase": "Pending", "containerStatuses": [{"restartCount": 0, "state": {"waiting": waiting}}]})


def crash_loops(stage: VirtualStage) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    status_of_pods(stage, {"phase": "Running", "podIP": "1", "containerStatuses": [{"restartCount": 4, "state": {"waiting": waiting}}]})


def unschedulable(stage: VirtualStage) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    status_of_pods(stage, {"phase": "Pending", "conditions": [condition]})


def evicted(stage: VirtualStage) -> None:
    status_of_pods(stage, {"phase": "Failed", "reason": "Evicted"})


def no_quota(stage: VirtualStage) -> None:
    def refuse(verb: str, resource: Resource, name: str) -> ClusterRefused | None:
        wanted = (verb, resource) == ("create", Resource.PODS)
        return ClusterRefused(403, "Forbidden", "exceeded quota: gpus") if wanted else None

    stage.cluster.refuse = refuse
    stage.apply(replicas=3)


def quota_again(stage: VirtualStage) -> None:
    stage.cluster.refuse = lambda verb, resource, name: None


def api_away(stage: VirtualStage) -> None:
    stage.api.up = False


def api_back(stage: VirtualStage) -> None:
    stage.api.up = True


def attained(share: float | None) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        stage.api.attainment = share

    return happens


def wants_tasks_in_time(stage: VirtualStage) -> None:
    stage.apply(replicas=2, slo={"task": [{"name": "default", "turnTime": "10m"}]})


def tasks_in_time(share: float | None) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        seen = () if share is None else (TaskObservation(name="default", tasks=100, in_time=round(100 * share), broken_off=0),)
        stage.api.tasks = seen

    return happens


def takes_turns(stage: VirtualStage, replicas: int = 1) -> None:
    role = {"name": "both", "maxReplicas": 2, "warm": {"asleep": 1, "turns": {"claims": ["gpu-0", "gpu-1"]}}}
    stage.cluster.objects.pop((Resource.PODS, "job"), None)
    stage.apply(replicas=replicas, roles=[role], rollout={"maxSurge": 0, "maxUnavailable": 1})


def wants_two(stage: VirtualStage) -> None:
    takes_turns(stage, 2)
    uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}], "containers": [{"name": "train"}]}
    stage.cluster.put(Resource.PODS, {"metadata": {"name": "job", "namespace": "default"}, "spec": uses, "status": {"phase": "Running"}})


def job_ends(stage: VirtualStage) -> None:
    stage.cluster.objects.pop((Resource.PODS, "job"))


def has_no_requests(stage: VirtualStage) -> None:
    stage.api.demand = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=600.0)


def no_more_pods(stage: VirtualStage) -> None:
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", "exceeded quota") if (verb, resource) == ("create", Resource.PODS) else None
    )
    for pod in stage.pods()[:1]:
        stage.cluster.objects.pop((Resource.PODS, pod["metadata"]["name"]))


def serves_another_model(stage: VirtualStage) -> None:
    stage.api.troubled_engines = (InstanceTrouble(instance="chat-0", trouble="ModelNotServed", words="it serves x, not m"),)


def serves_its_model(stage: VirtualStage) -> None:
    stage.api.troubled_engines = ()


def follows_a_forecast(stage: VirtualStage) -> None:
    nights = {
        "name": "nights",
        "cron": "0 20 * * *",
        "duration": "10h",
        "roles": [{"name": "both", "maxReplicas": 8}],
        "followsForecast": True,
    }
    stage.apply(replicas=2, scaling={"schedules": [nights]})


def departs(words: str) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        stage.api.departed = words

    return happens


def acknowledges(whether: bool) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        stage.api.acknowledges = whether

    return happens


def applied(**spec: Any) -> Callable[[VirtualStage], None]:
    return lambda stage: stage.apply(**spec)


def cordons(value: str) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/cordoned"] = value

    return happens


def by_the_slo(stage: VirtualStage) -> None:
    """Make the pool follow its SLO, between 2 and 3 instances, and give it signals."""
    quick = {"stabilizationWindow": "0s", "instances": 4, "period": "1s"}
    scaling = {"mode": "SLO", "period": "2s", "scaleUp": quick, "scaleDown": {**quick, "cooldown": "0s"}}
    stage.apply(replicas=2, roles=[{"name": "both", "minReplicas": 2, "maxReplicas": 3}], scaling=scaling)
    asked_for(1600.0)(stage)


def asked_for(tokens: float | None) -> Callable[[VirtualStage], None]:
    """Return an event that sets signals of this many prompt tokens per second, of which an instance is to prefill 800.

    None = no signals.
    """

    def happens(stage: VirtualStage) -> None:
        stage.api.signals = None if tokens is None else pool_signals(role_signals(prompt_tokens_per_second=tokens))

    return happens


def migrations(mode: str) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        stage.apply(replicas=2, routing={"migrations": mode})

    return happens


def wants_gateways(stage: VirtualStage) -> None:
    """Make the pool ask for gateways, and give the operator the address at which they reach the routers."""
    picker = PickerSettings(service=ServiceName(namespace="default", name="routers"))
    stage.cluster.put(Resource.SERVICES, {"metadata": {"name": "routers"}, "spec": {"ports": [{"port": picker.port}]}})
    stage.settings = replace(SETTINGS, picker=picker)
    stage.restart()
    stage.apply(gateway={})


def gateway_says(status: str, reason: str) -> Callable[[VirtualStage], None]:
    def happens(stage: VirtualStage) -> None:
        child = stage.cluster.objects[Resource.GATEWAY_POOLS, "chat"]
        said = {"parentRef": {"name": "public"}, "conditions": [{"type": "Accepted", "status": status, "reason": reason}]}
        stage.cluster.put(Resource.GATEWAY_POOLS, child | {"status": {"parents": [said]}})
        assert stage.reconciler is not None
        stage.reconciler.changed()

    return happens


with_a_minimum = applied(roles=[{"name": "both", "minReplicas": 2}])


def nothing(stage: VirtualStage) -> None:
    """Let only time pass."""


WELL = applied(replicas=2)
BAD = applied(routing={"policy": "dualmap", "parameters": {"slo_fraction": "most"}})
SERVES = Step(happens=nothing, status="True", reason="AllServing", words="2 of 2 instances serve")
FINE = Step(happens=nothing, status="False", reason="AsExpected", words="No fault is known")

HISTORIES: dict[tuple[ConditionType, str], tuple[Step, ...]] = {
    (ConditionType.READY, "a refused spec"): (
        Step(happens=WELL, status="True", reason="AllServing", words="2 of 2 instances serve"),
        Step(happens=BAD, status="False", reason="InvalidRouting", words="the last good spec stays in force"),
        Step(happens=WELL, status="True", reason="AllServing", words="2 of 2 instances serve"),
    ),
    (ConditionType.FORECAST_HOLDS, "demand leaves its band"): (
        Step(happens=follows_a_forecast, status="True", reason="WithinBand", words="are in force"),
        Step(happens=departs("twice as many requests"), status="False", reason="DemandLeftBand", words="suspended: twice as many requests"),
        Step(happens=departs(""), status="True", reason="WithinBand", words="are in force"),
    ),
    (ConditionType.INSTANCES_READY, "scaled and lost"): (
        Step(happens=WELL, status="False", reason="InstancesStarting", words="0 of 2 instances serve", rounds=3, kubelet=False),
        SERVES,
        Step(happens=not_ready, status="False", reason="InstancesLost", words="1 of 2 instances serve, 1 lost", rounds=3, kubelet=False),
        SERVES,
        Step(happens=applied(replicas=0), status="True", reason="ScaledToZero", words="No instance is desired"),
        Step(happens=WELL, status="False", reason="InstancesStarting", words="0 of 2 instances serve", rounds=2, kubelet=False),
        SERVES,
    ),
    (ConditionType.RING_SYNCED, "routers lag, the API goes"): (
        Step(happens=WELL, status="True", reason="Acknowledged", words="The live router routes by table version 1"),
        Step(happens=acknowledges(False), status="False", reason="WaitingForRouters", words="table version 1"),
        Step(happens=acknowledges(True), status="True", reason="Acknowledged", words="table version 1"),
        Step(happens=api_away, status="Unknown", reason="ControlPlaneUnreachable", words="the last table", rounds=20),
        Step(happens=api_back, status="True", reason="Acknowledged", words="table version 1"),
    ),
    (ConditionType.PROGRESSING, "scaled"): (
        Step(happens=WELL, status="True", reason="Scaling", words="2 of 2 instances exist, 2 start", rounds=3, kubelet=False),
        Step(happens=nothing, status="False", reason="Settled", words="Nothing to do"),
        Step(
            happens=applied(replicas=4), status="True", reason="Scaling", words="4 of 4 instances exist, 2 start", rounds=3, kubelet=False
        ),
        Step(happens=nothing, status="False", reason="Settled", words="Nothing to do"),
    ),
    (ConditionType.SLO_MET, "attainment"): (
        Step(happens=WELL, status="Unknown", reason="NoTraffic", words="No request finished"),
        Step(happens=attained(0.97), status="True", reason="TargetMet", words="97% of the requests"),
        Step(happens=attained(0.5), status="False", reason="TargetMissed", words="50% of the requests"),
        Step(happens=attained(0.95), status="True", reason="TargetMet", words="95% of the requests"),
        Step(happens=api_away, status="True", reason="TargetMet", words="; the control API has not answered since", rounds=60),
        Step(happens=nothing, status="Unknown", reason="ControlPlaneUnreachable", words="not known", rounds=70),
        Step(happens=api_back, status="True", reason="TargetMet", words="95% of the requests"),
        Step(happens=attained(None), status="Unknown", reason="NoTraffic", words="No request finished"),
    ),
    (ConditionType.TASK_SLO_MET, "tasks"): (
        Step(happens=wants_tasks_in_time, status="Unknown", reason="NoTasks", words="No task with a target ended"),
        Step(happens=tasks_in_time(0.9), status="True", reason="TargetMet", words="default: 90% of 100 were in time"),
        Step(happens=tasks_in_time(0.89), status="False", reason="TargetMissed", words="default: 89% of 100 were in time, wanted 90%"),
        Step(happens=tasks_in_time(1.0), status="True", reason="TargetMet", words="default: 100% of 100"),
        Step(happens=api_away, status="True", reason="TargetMet", words="; the control API has not answered since", rounds=60),
        Step(happens=nothing, status="Unknown", reason="ControlPlaneUnreachable", words="not known", rounds=70),
        Step(happens=api_back, status="True", reason="TargetMet", words="default: 100% of 100"),
        Step(happens=tasks_in_time(None), status="Unknown", reason="NoTasks", words="No task with a target ended"),
    ),
    (ConditionType.HAS_DEVICES, "a device is in use"): (
        Step(happens=takes_turns, status="True", reason="HasItsDevices", words="No instance waits for a device"),
        Step(happens=wants_two, status="False", reason="WaitsForDevice", words="1 of 2 instances waits for a device; in use: gpu-1 by job"),
        Step(happens=job_ends, status="True", reason="HasItsDevices", words="No instance waits for a device"),
        Step(happens=has_no_requests, status="True", reason="Idle", words="no requests"),
        Step(happens=no_more_pods, status="Unknown", reason="ActionsFail", words="see Degraded"),
    ),
    (ConditionType.CONTROL_PLANE_REACHABLE, "an outage"): (
        Step(happens=api_away, status="Unknown", reason="NotAnsweredYet", words="has not answered yet", rounds=1),
        Step(happens=api_back, status="True", reason="Answered", words="accepted the pool's state"),
        Step(happens=api_away, status="True", reason="Answered", words="accepted the pool's state", rounds=5),
        Step(happens=nothing, status="False", reason="NoAnswer", words="connection refused; serving instances keep serving", rounds=15),
        Step(happens=api_back, status="True", reason="Answered", words="accepted the pool's state"),
    ),
    (ConditionType.DEGRADED, "an image that cannot be pulled"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="", rounds=3, kubelet=False),
        Step(
            happens=cannot_pull,
            status="True",
            reason="ImagePullBackOff",
            words="ImagePullBackOff (Back-off pulling image)",
            rounds=3,
            kubelet=False,
        ),
        FINE,
    ),
    (ConditionType.DEGRADED, "a crash loop"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="No fault is known"),
        Step(happens=crash_loops, status="True", reason="CrashLoopBackOff", words="restarting failed container", rounds=3, kubelet=False),
        FINE,
    ),
    (ConditionType.DEGRADED, "no node has room"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="", rounds=3, kubelet=False),
        Step(happens=unschedulable, status="True", reason="Unschedulable", words="0/3 nodes are available", rounds=3, kubelet=False),
        FINE,
    ),
    (ConditionType.DEGRADED, "an eviction"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="No fault is known", rounds=5),
        Step(happens=evicted, status="True", reason="InstancesLost", words="(Evicted)", rounds=2, kubelet=False),
        FINE,
    ),
    (ConditionType.DEGRADED, "a lost node"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="No fault is known"),
        Step(happens=on_a_lost_node, status="True", reason="InstancesLost", words="(NodeUnreachable)", rounds=3, kubelet=False),
        Step(happens=nothing, status="False", reason="AsExpected", words="No fault is known", rounds=90, kubelet=False),
    ),
    (ConditionType.DEGRADED, "no quota"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="No fault is known"),
        Step(happens=no_quota, status="True", reason="ActionFailed", words="exceeded quota: gpus"),
        Step(happens=quota_again, status="False", reason="AsExpected", words="No fault is known", rounds=40),
    ),
    (ConditionType.DEGRADED, "below the minimum"): (
        Step(happens=with_a_minimum, status="False", reason="AsExpected", words="No fault is known"),
        Step(happens=cordons("true"), status="True", reason="BelowMinimum", words="1 instances take requests, fewer than the minimum of 2"),
        Step(happens=cordons("false"), status="False", reason="AsExpected", words="No fault is known"),
    ),
    (ConditionType.DEGRADED, "an engine with another model"): (
        Step(happens=WELL, status="False", reason="AsExpected", words="No fault is known"),
        Step(happens=serves_another_model, status="True", reason="ModelNotServed", words="chat-0: it serves x, not m"),
        Step(happens=serves_its_model, status="False", reason="AsExpected", words="No fault is known"),
    ),
    (ConditionType.SCALING_ACTIVE, "measured, not measured, not answered"): (
        Step(happens=WELL, status="False", reason="ScalingDisabled", words="scaling.mode and ratio.mode are Fixed"),
        Step(happens=by_the_slo, status="True", reason="ValidSignalsFound", words="Every role is measured"),
        Step(happens=asked_for(None), status="False", reason="NoSignals", words="the numbers of instances stay as they are"),
        Step(happens=asked_for(1600.0), status="True", reason="ValidSignalsFound", words="Every role is measured"),
        Step(happens=api_away, status="True", reason="ValidSignalsFound", words="Every role is measured", rounds=5),
        Step(happens=nothing, status="False", reason="NoSignals", words="No fresh measurements of both", rounds=15),
        Step(happens=api_back, status="True", reason="ValidSignalsFound", words="Every role is measured"),
        Step(happens=WELL, status="False", reason="ScalingDisabled", words="scaling.mode and ratio.mode are Fixed"),
    ),
    (ConditionType.SCALING_LIMITED, "beyond either bound"): (
        Step(happens=by_the_slo, status="False", reason="DesiredWithinRange", words="No bound keeps a role from its recommended number"),
        Step(
            happens=asked_for(6000.0),
            status="True",
            reason="TooManyReplicas",
            words="8 instances are recommended, but the role allows only 2 to 3",
        ),
        Step(
            happens=asked_for(2400.0),
            status="False",
            reason="DesiredWithinRange",
            words="No bound keeps a role from its recommended number",
        ),
        Step(
            happens=asked_for(0.0),
            status="False",
            reason="DesiredWithinRange",
            words="keeps 2 instances, as intended: the load needs only 1",
        ),
        Step(
            happens=asked_for(1600.0),
            status="False",
            reason="DesiredWithinRange",
            words="No bound keeps a role from its recommended number",
        ),
    ),
    (ConditionType.MIGRATIONS_PAUSED, "paused and not"): (
        Step(happens=WELL, status="False", reason="NotPaused", words="Sessions move by the policy's rules"),
        Step(happens=migrations("Paused"), status="True", reason="PausedInSpec", words="Sessions stay on their instance"),
        Step(happens=migrations("Enabled"), status="False", reason="NotPaused", words="Sessions move by the policy's rules"),
    ),
    (ConditionType.GATEWAY_READY, "a gateway comes"): (
        Step(happens=wants_gateways, status="Unknown", reason="NoGateway", words="No gateway routes to the pool yet"),
        Step(happens=gateway_says("True", "Accepted"), status="True", reason="Accepted", words="Accepted by Gateway default/public"),
        Step(happens=gateway_says("False", "HTTPRouteNotAccepted"), status="False", reason="NotAccepted", words="HTTPRouteNotAccepted"),
        Step(happens=gateway_says("Unknown", "Pending"), status="Unknown", reason="NotJudgedYet", words="has not reported yet"),
        Step(happens=gateway_says("True", "Accepted"), status="True", reason="Accepted", words="Accepted by"),
    ),
    (ConditionType.READY, "a cordon"): (
        SERVES,
        Step(happens=cordons("true"), status="False", reason="InstancesCordoned", words="1 of 2 instances serve, 1 cordoned"),
        Step(happens=cordons("false"), status="True", reason="AllServing", words="2 of 2 instances serve"),
    ),
}


def test_every_condition_has_a_history_that_shows_each_of_its_values() -> None:
    for kind in ConditionType:
        seen = {step.status for (of, _), steps in HISTORIES.items() if of is kind for step in steps}
        assert {"True", "False"} <= seen, kind
    for kind in (ConditionType.RING_SYNCED, ConditionType.SLO_MET, ConditionType.CONTROL_PLANE_REACHABLE, ConditionType.GATEWAY_READY):
        assert "Unknown" in {step.status for (of, _), steps in HISTORIES.items() if of is kind for step in steps}, kind


@pytest.mark.parametrize(("kind", "name"), HISTORIES, ids=lambda value: str(value))
async def test_a_condition_goes_to_each_of_its_values_and_back(kind: ConditionType, name: str) -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    before: dict[str, Any] | None = None
    for number, step in enumerate(HISTORIES[kind, name]):
        step.happens(stage)
        for _ in range(step.rounds):
            if step.kubelet:
                stage.pods_become_ready()
            stage.now += 1
            await stage.round()
        found = stage.condition(kind)
        told = f"step {number} of {name}: {found}"
        assert (found["status"], found["reason"]) == (step.status, step.reason), told
        assert step.words in found["message"], told
        if found["reason"] != "NotAnsweredYet" and stage.api.up:
            assert found["observedGeneration"] == stage.pool()["metadata"]["generation"], told
        if before is not None:
            assert (found["lastTransitionTime"] != before["lastTransitionTime"]) == (found["status"] != before["status"]), told
        before = found
    assert SETTINGS.pace.silence == 10, "the outages above are shorter or longer than this"
