"""The conditions of a pool and their reasons."""

from dataclasses import replace

import pytest

from fairlead.conditions.facts import (
    ActionFailure,
    ActionFailureReason,
    Condition,
    ConditionType,
    GatewayFacts,
    PoolFacts,
    ScalingFacts,
    SpecProblem,
    SpecRefusal,
    Trouble,
)
from fairlead.conditions.pool_conditions import merge_conditions, pool_conditions
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceTrouble, TaskObservation
from fairlead.reconciling.actions import DeleteInstance
from fairlead.reconciling.devices import Turn
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import PodHealth, RolloutBounds
from fairlead.reconciling.rollout_progress import RolloutTrouble
from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.targets import RoleTarget, TargetReason
from fairlead.tables import TaskTarget, meets
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted, wanted_pool

S = InstanceState

SETTLED = PoolFacts(
    problem=None,
    desired=(wanted(2),),
    instances=(instance("a"), instance("b")),
    observations=answer(seen("a"), seen("b")),
    api_problem=None,
    slo_percentile=90.0,
    troubles=(),
    apply_problem=None,
    scaling=ScalingFacts(is_fixed=True, answered=True, targets=(), measured=frozenset()),
)


TURN = Turn(wanted=1, waiting=0, holders=(), idle=False)
TASK_TARGETS = (
    TaskTarget(name="agents", turn_time_seconds=600.0, percentile=95.0),
    TaskTarget(name="default", wall_time_seconds=600.0),
)


def troubled(name: str, trouble: str, words: str) -> InstanceTrouble:
    return InstanceTrouble(instance=name, trouble=trouble, words=words)


def of(facts: PoolFacts) -> dict[str, tuple[str, str]]:
    return {condition.type.value: (condition.status, condition.reason) for condition in pool_conditions(facts)}


def test_a_settled_pool_is_ready_and_nothing_is_wrong() -> None:
    assert of(SETTLED) == {
        "Ready": ("True", "AllServing"),
        "InstancesReady": ("True", "AllServing"),
        "RingSynced": ("True", "Acknowledged"),
        "Progressing": ("False", "Settled"),
        "SLOMet": ("Unknown", "NoTraffic"),
        "ControlPlaneReachable": ("True", "Answered"),
        "Degraded": ("False", "AsExpected"),
        "ScalingActive": ("False", "ScalingDisabled"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
        "MigrationsPaused": ("False", "NotPaused"),
    }


def test_every_situation_has_every_condition_once() -> None:
    for facts in (SETTLED, replace(SETTLED, desired=(), slo_percentile=None), replace(SETTLED, observations=None, instances=())):
        everything = replace(facts, gateway=GatewayFacts(), follows_forecast=True, task_targets=TASK_TARGETS, turn=TURN)
        assert [condition.type for condition in pool_conditions(everything)] == list(ConditionType)


def test_a_pool_that_asks_for_no_gateway_says_nothing_of_gateways() -> None:
    assert ConditionType.GATEWAY_READY not in [condition.type for condition in pool_conditions(SETTLED)]


@pytest.mark.parametrize("reason", ["Unschedulable", "WaitingForQuota"])
def test_a_rollout_that_finds_no_room_names_the_remedy_until_old_instances_may_go_first(reason: str) -> None:
    old, trouble = wanted(2, spec_hash="new"), Trouble(instance="c", reason=reason, message="0/3 nodes are available")
    stuck = replace(SETTLED, desired=(old,), troubles=(trouble,))
    remedy = "set rollout.maxSurge 0 and maxUnavailable 1, then an old instance ends first"
    assert remedy in message_of(stuck, "Progressing")
    late = replace(stuck, rollout_trouble=(RolloutTrouble.LATE, "no further instance updated"))
    assert remedy in message_of(late, "Progressing")
    done = replace(stuck, desired=(replace(old, rollout=RolloutBounds(max_surge=0, max_unavailable=1)),))
    assert remedy not in message_of(done, "Progressing")
    assert remedy not in message_of(replace(stuck, troubles=()), "Progressing")


def message_of(facts: PoolFacts, kind: str) -> str:
    return next(one.message for one in pool_conditions(facts) if one.type == kind)


def test_a_refused_spec_makes_the_pool_not_ready_though_its_instances_are() -> None:
    facts = replace(SETTLED, problem=SpecProblem(reason=SpecRefusal.INVALID_ROUTING, message="spec.routing.policy: 'x' cannot be used"))
    assert of(facts)["Ready"] == ("False", "InvalidRouting")
    assert of(facts)["InstancesReady"] == ("True", "AllServing")
    assert "last good spec stays in force" in pool_conditions(facts)[0].message
    assert "nothing is created" in pool_conditions(replace(facts, desired=()))[0].message


def test_routers_wait_for_no_table_of_a_pool_that_never_had_a_valid_spec() -> None:
    never = replace(SETTLED, desired=(), instances=(), observations=replace(answer(), table_version=0, table_acknowledged=False))
    assert of(never)["RingSynced"] == ("Unknown", "NoValidSpec")


@pytest.mark.parametrize(
    ("facts", "kind", "expected"),
    [
        (replace(SETTLED, desired=(wanted(3),)), "InstancesReady", ("False", "InstancesStarting")),
        (replace(SETTLED, desired=(wanted(0),), instances=()), "Ready", ("True", "ScaledToZero")),
        (replace(SETTLED, instances=(instance("a"), instance("b", S.LOST))), "InstancesReady", ("False", "InstancesLost")),
        (replace(SETTLED, instances=(instance("a"), instance("b", S.LOST))), "Degraded", ("True", "InstancesLost")),
        (replace(SETTLED, instances=(instance("a", S.WARMING),), observations=None), "Ready", ("False", "WaitingForControlPlane")),
        (replace(SETTLED, observations=None, api_problem="refused"), "ControlPlaneReachable", ("False", "NoAnswer")),
        (replace(SETTLED, observations=None, api_problem="refused"), "RingSynced", ("Unknown", "ControlPlaneUnreachable")),
        (replace(SETTLED, observations=answer(seen("a", acknowledged=False))), "RingSynced", ("False", "WaitingForRouters")),
        (replace(SETTLED, observations=answer(live_routers=0)), "RingSynced", ("True", "NoLiveRouter")),
        (replace(SETTLED, desired=(wanted(2, spec_hash="new"),)), "Progressing", ("True", "RollingReplacement")),
        (replace(SETTLED, instances=(*SETTLED.instances, instance("c", S.DRAINING))), "Progressing", ("True", "Draining")),
        (replace(SETTLED, desired=(wanted(3),)), "Progressing", ("True", "Scaling")),
        (replace(SETTLED, observations=replace(answer(), ttft_attainment=0.95)), "SLOMet", ("True", "TargetMet")),
        (replace(SETTLED, observations=replace(answer(), ttft_attainment=0.5)), "SLOMet", ("False", "TargetMissed")),
        (replace(SETTLED, observations=replace(answer(), ttft_attainment=0.99, slo_attainment=0.6)), "SLOMet", ("False", "TargetMissed")),
        (replace(SETTLED, troubles=(Trouble(instance="a", reason="ErrImagePull"),)), "Degraded", ("True", "ErrImagePull")),
        (
            replace(SETTLED, apply_problem=ActionFailure(reason=ActionFailureReason.ACTION_FAILED, message="quota")),
            "Degraded",
            ("True", "ActionFailed"),
        ),
        (replace(SETTLED, desired=(wanted(3, minimum=3),)), "Degraded", ("True", "BelowMinimum")),
        (
            replace(SETTLED, observations=replace(answer(), troubled_engines=(troubled("a", "KvUsageMissing", "no gauge"),))),
            "Degraded",
            ("True", "KvUsageMissing"),
        ),
        (replace(SETTLED, instances=(*SETTLED.instances, instance("c", S.LOST, terminating=True))), "Degraded", ("False", "AsExpected")),
        (replace(SETTLED, instances=(instance("a"), instance("b", S.CORDONED))), "Ready", ("False", "InstancesCordoned")),
        (replace(SETTLED, strangers=("mine",)), "Degraded", ("True", "StrangePods")),
        (replace(SETTLED, observations=None), "ControlPlaneReachable", ("Unknown", "NotAnsweredYet")),
    ],
)
def test_each_situation_has_its_named_reason(facts: PoolFacts, kind: str, expected: tuple[str, str]) -> None:
    assert of(facts)[kind] == expected


def test_a_pool_of_two_roles_counts_each_and_names_what_is_short() -> None:
    prefill, decode = replace(wanted(2, minimum=1), role=Role.PREFILL), replace(wanted(1, minimum=1), role=Role.DECODE)
    instances = tuple(
        replace(instance(name), role=role) for name, role in (("p1", Role.PREFILL), ("p2", Role.PREFILL), ("d1", Role.DECODE))
    )
    facts = replace(SETTLED, desired=(prefill, decode), instances=instances)
    ready, *_ = pool_conditions(facts)
    assert (ready.status, ready.message) == ("True", "2 of 2 prefill instances serve; 1 of 1 decode instances serve")
    ready, _, _, progressing, *_ = pool_conditions(replace(facts, desired=(replace(prefill, replicas=3), decode)))
    assert (ready.status, ready.reason, ready.message) == ("False", "InstancesStarting", "2 of 3 prefill instances serve")
    assert progressing.message == "2 of 3 prefill instances exist, 0 start"
    degraded = pool_conditions(replace(facts, instances=instances[:2]))[6]
    assert (degraded.reason, degraded.message) == ("BelowMinimum", "0 decode instances take requests, fewer than the minimum of 1")
    lost = (*instances[:2], replace(instances[2], state=S.LOST))
    ready, *_ = pool_conditions(replace(facts, desired=(replace(prefill, replicas=3), decode), instances=lost))
    assert ready.reason == "InstancesLost", "the gravest shortage gives the reason"
    assert ready.message == "2 of 3 prefill instances serve; 0 of 1 decode instances serve, 1 lost"


def test_instances_that_are_yet_to_be_drained_are_counted_beside_the_wanted_ones() -> None:
    ready, *_ = pool_conditions(replace(SETTLED, desired=(wanted(1),)))
    assert (ready.status, ready.message) == ("True", "1 of 1 instances serve, and 1 more")


@pytest.mark.parametrize(
    ("both", "tpot", "words"),
    [
        (
            0.83,
            1.0,
            "83% of the requests that ended in the last 5 minutes met the targets of TTFT and TPOT, wanted 90%; "
            "in these minutes, 96% of all first tokens (also of requests that still run) met TTFT, 100% of all answers met TPOT",
        ),
        (None, None, "96% of the requests of the last 5 minutes met the TTFT target, wanted 90%"),
    ],
)
def test_each_share_of_the_slo_names_what_it_is_a_share_of(both: float | None, tpot: float | None, words: str) -> None:
    observations = replace(answer(), ttft_attainment=0.96, slo_attainment=both, tpot_attainment=tpot)
    facts = replace(SETTLED, observations=observations)
    assert [one.message for one in pool_conditions(facts) if one.type is ConditionType.SLO_MET] == [words]


@pytest.mark.parametrize(
    ("attained", "words"),
    [(0.896, "89.6%"), (0.8996, "89.96%"), (0.9, "90%"), (0.904, "90%"), (0.8, "80%"), (0.997, "99.7%"), (1.0, "100%")],
)
def test_neither_a_missed_goal_nor_all_requests_are_said_to_be_reached_when_they_are_not(attained: float, words: str) -> None:
    observations = replace(answer(), slo_attainment=attained)
    (one,) = [one for one in pool_conditions(replace(SETTLED, observations=observations)) if one.type is ConditionType.SLO_MET]
    assert one.message.startswith(f"{words} of the requests")
    assert one.status == ("True" if attained >= 0.9 else "False")


def of_tasks(name: str, tasks: int, in_time: int, broken_off: int = 0) -> TaskObservation:
    return TaskObservation(name=name, tasks=tasks, in_time=in_time, broken_off=broken_off)


@pytest.mark.parametrize(
    ("seen", "status", "words"),
    [
        (
            (of_tasks("agents", 40, 38, 1), of_tasks("default", 10, 9)),
            "True",
            "Tasks that were over in the last hour: agents: 95% of 40 were in time, wanted 95%, and 1 more broke off; "
            "default: 90% of 10 were in time, wanted 90%",
        ),
        (
            (of_tasks("agents", 1000, 949), of_tasks("default", 0, 0, 2)),
            "False",
            "Tasks that were over in the last hour: agents: 94.9% of 1000 were in time, wanted 95%; default: none, and 2 more broke off",
        ),
        ((of_tasks("batch", 9, 0),), "Unknown", "No task with a target ended in the last hour"),
        ((of_tasks("agents", 0, 0, 3),), "Unknown", "No task with a target ended in the last hour, and 3 broke off"),
        ((), "Unknown", "No task with a target ended in the last hour"),
    ],
)
def test_tasks_meet_their_target_when_each_class_with_one_does(seen: tuple[TaskObservation, ...], status: str, words: str) -> None:
    facts = replace(SETTLED, observations=replace(answer(), tasks=seen), task_targets=TASK_TARGETS)
    (one,) = [one for one in pool_conditions(facts) if one.type is ConditionType.TASK_SLO_MET]
    assert (one.status, one.message) == (status, words)


@pytest.mark.parametrize(("in_time", "whole", "goal"), [(309, 375, 82.4), (603, 750, 80.4), (9, 10, 90.0), (999, 1000, 99.9)])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_share_that_equals_its_goal_meets_it_in_conditions_as_in_the_api(in_time: int, whole: int, goal: float, missing: int) -> None:
    """Few shares and goals are exact floating-point numbers."""
    target, seen_ = TaskTarget(name="default", turn_time_seconds=1.0, percentile=goal), of_tasks("default", whole, in_time - missing)
    observations = replace(answer(), tasks=(seen_,), slo_attainment=(in_time - missing) / whole)
    facts = replace(SETTLED, observations=observations, task_targets=(target,), slo_percentile=goal)
    found = {one.type: one for one in pool_conditions(facts)}
    for kind in (ConditionType.SLO_MET, ConditionType.TASK_SLO_MET):
        assert found[kind].status == ("False" if missing else "True"), found[kind].message
        shown = float(found[kind].message.partition("%")[0].rpartition(" ")[2])
        assert (shown >= goal) is not bool(missing), found[kind].message
    assert meets((in_time - missing) / whole, goal) is not bool(missing)


@pytest.mark.parametrize(
    ("is_fixed", "wanted", "number", "status"),
    [(True, 4, 8, "False"), (True, 4, 2, "False"), (False, 4, 8, "False"), (False, 4, 2, "True")],
)
def test_a_schedule_limits_a_pool_only_where_it_allows_fewer_instances_than_the_load_needs(
    is_fixed: bool, wanted: int, number: int, status: str
) -> None:
    bounds = BoundsInForce(lower=number, upper=number, lower_by="office", upper_by="office")
    target = RoleTarget(
        role=Role.BOTH, replicas=number, reason=TargetReason.SCHEDULE, declared=4, wanted=wanted, bounds=bounds, schedule="office"
    )
    facts = replace(SETTLED, scaling=ScalingFacts(is_fixed=is_fixed, answered=True, targets=(target,), measured=frozenset()))
    (found,) = [one for one in pool_conditions(facts) if one.type is ConditionType.SCALING_LIMITED]
    assert found.status == status and "chedule office" in found.message


@pytest.mark.parametrize(
    ("is_measured", "wanted", "status", "reason"),
    [
        (True, 1, "False", "DesiredWithinRange"),
        (True, 9, "True", "TooManyReplicas"),
        (False, 1, "True", "TooFewReplicas"),
        (False, 9, "True", "TooManyReplicas"),
    ],
)
def test_a_minimum_limits_a_number_that_somebody_declares_and_not_a_load_that_needs_fewer(
    is_measured: bool, wanted: int, status: str, reason: str
) -> None:
    bounds = BoundsInForce(lower=2, upper=4)
    number = bounds.clamp(wanted)
    target = RoleTarget(
        role=Role.BOTH, replicas=number, reason=TargetReason.ROLE_BOUNDS, declared=2, wanted=wanted, bounds=bounds, schedule=None
    )
    scaling = ScalingFacts(is_fixed=False, answered=True, targets=(target,), measured=frozenset(), is_measured=is_measured)
    (found,) = [one for one in pool_conditions(replace(SETTLED, scaling=scaling)) if one.type is ConditionType.SCALING_LIMITED]
    assert (found.status, found.reason) == (status, reason)
    assert (found.message == "The minimum of the role keeps 2 instances, as intended: the load needs only 1") == (status == "False")


def test_figures_that_are_behind_are_no_missing_traffic_and_stop_scaling_by_them() -> None:
    observations = replace(answer(), figures_behind_seconds=725.0, slo_attainment=None, ttft_attainment=None)
    bounds = BoundsInForce(lower=1, upper=9)
    target = RoleTarget(role=Role.BOTH, replicas=2, reason=TargetReason.DECLARED, declared=2, wanted=2, bounds=bounds, schedule=None)
    scales = ScalingFacts(is_fixed=False, answered=True, targets=(target,), measured=frozenset())
    facts = replace(SETTLED, observations=observations, scaling=scales)
    found = of(facts)
    assert (found["SLOMet"], found["ScalingActive"]) == (("Unknown", "FiguresBehind"), ("False", "FiguresBehind"))
    words = [one.message for one in pool_conditions(facts) if one.type is ConditionType.SLO_MET]
    assert words == ["Attainment is not known: the control API's roll-ups are 12 min behind"]


def test_the_transition_time_changes_only_with_the_status() -> None:
    def condition(status: str, message: str) -> Condition:
        return Condition(type=ConditionType.READY, status=status, reason="R", message=message)

    [first] = merge_conditions((), (condition("True", "one"),), 1, "t1")
    [reworded] = merge_conditions((first,), (condition("True", "two"),), 2, "t2")
    assert (reworded["lastTransitionTime"], reworded["message"], reworded["observedGeneration"]) == ("t1", "two", 2)
    [turned] = merge_conditions((reworded,), (condition("False", "two"),), 2, "t3")
    assert turned["lastTransitionTime"] == "t3"


def test_what_is_not_known_yet_leaves_the_condition_as_it_stood() -> None:
    before = merge_conditions((), pool_conditions(SETTLED), 1, "t1")
    silent = replace(SETTLED, observations=None)
    assert merge_conditions(before, pool_conditions(silent), 2, "t2")[5] == before[5], "one late answer is not an outage"
    reachable = merge_conditions((), pool_conditions(silent), 1, "t1")[5]
    assert (reachable["status"], reachable["reason"]) == ("Unknown", "NotAnsweredYet")
    reachable = merge_conditions(before, pool_conditions(replace(silent, api_problem="refused")), 2, "t2")[5]
    assert (reachable["status"], reachable["lastTransitionTime"]) == ("False", "t2")


def message(facts: PoolFacts, kind: str) -> str:
    return next(condition.message for condition in pool_conditions(facts) if condition.type == kind)


def test_what_keeps_instances_from_running_is_told_with_their_names_and_kubernetes_words() -> None:
    troubles = (
        Trouble(instance="b", reason="ImagePullBackOff", message='Back-off pulling image "x"'),
        Trouble(instance="a", reason="ImagePullBackOff", message='Back-off pulling image "x"'),
        *(Trouble(instance=f"n{number}", reason="Unschedulable", message="0/3 nodes are available") for number in range(7)),
    )
    facts = replace(SETTLED, troubles=troubles)
    assert of(facts)["Degraded"] == ("True", "ImagePullBackOff")
    assert message(facts, "Degraded") == (
        'a, b: ImagePullBackOff (Back-off pulling image "x"); n0, n1, n2, n3, n4 and 2 more: Unschedulable (0/3 nodes are available)'
    )


def test_a_lost_instance_is_told_with_the_reason_and_how_often_it_failed() -> None:
    evicted = replace(instance("a", S.LOST, health=PodHealth.FAILED), health_reason="Evicted", failures=2)
    facts = replace(SETTLED, instances=(evicted, instance("b", S.LOST), instance("c", S.LOST, health=PodHealth.RUNNING)))
    assert message(facts, "Degraded") == "Lost: a (Evicted, 3 failures in a row), b (NodeUnreachable), c (NotReady)"


def test_engines_that_are_not_as_the_spec_says_are_named_with_what_was_found() -> None:
    found = (
        troubled("b", "ModelNotServed", "it serves x, not m"),
        troubled("a", "ModelNotServed", "it serves x, not m"),
        troubled("a", "KvUsageMissing", "no gauge"),
    )
    facts = replace(SETTLED, observations=replace(answer(), troubled_engines=found))
    (degraded,) = [condition for condition in pool_conditions(facts) if condition.type is ConditionType.DEGRADED]
    assert (degraded.reason, degraded.message) == ("KvUsageMissing", "a: no gauge; a, b: it serves x, not m")


def test_an_engine_that_is_slow_for_a_moment_makes_no_pool_degraded_and_one_that_is_stalled_does() -> None:
    slow, stalled = troubled("a", "EngineSlow", "it moved nothing for a while"), troubled("b", "EngineStalled", "it moved nothing")
    assert of(replace(SETTLED, observations=replace(answer(), troubled_engines=(slow,))))["Degraded"][0] == "False"
    both = replace(SETTLED, observations=replace(answer(), troubled_engines=(slow, stalled)))
    assert of(both)["Degraded"] == ("True", "EngineStalled")
    assert message(both, "Degraded") == "b: it moved nothing"


def test_what_happens_without_the_control_api_is_told_as_it_is() -> None:
    told = next(one for one in pool_conditions(replace(SETTLED, observations=None, api_problem="refused")) if one.reason == "NoAnswer")
    assert "are not drained; drains in progress end at drain.timeout; new instances wait" in told.message
    draining, goal = instance("b", S.DRAINING, since=0.0), wanted_pool(1)
    assert next_actions(goal, (instance("a"), instance("c")), None, 60.0) == ()
    assert next_actions(goal, (instance("a"), draining), None, 60.0) == ()
    assert [type(action) for action in next_actions(goal, (instance("a"), draining), None, 120.0)] == [DeleteInstance]
