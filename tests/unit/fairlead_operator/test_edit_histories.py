"""After any edits, refusals and losses, a pool that is left alone with its last spec ends as a new pool with this spec
does: with the same conditions, numbers and objects. In virtual time.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead_operator.cluster import ClusterError, ClusterRefused, ClusterUnavailable, Resource
from fairlead_testing.builders.scaling import pool_signals, role_signals
from fairlead_testing.examples import examples
from fairlead_testing.worlds.operator_crashes import TERMINATING
from fairlead_testing.worlds.operator_stages import VirtualStage

Spec = dict[str, Any]
NEW = {"simulated": {"decodeStep": "9ms"}}
QUICK = {"stabilizationWindow": "0s", "instances": 4, "period": "1s"}
BY_SLO = {"mode": "SLO", "period": "2s", "scaleUp": QUICK, "scaleDown": {**QUICK, "cooldown": "0s"}}
ALWAYS = {"name": "always", "cron": "* * * * *", "duration": "1m", "roles": [{"name": "both", "minReplicas": 3}], "slo": {"ttft": "1s"}}

WHOLE: tuple[Spec, ...] = (
    {"replicas": 2},
    {"replicas": 3, "engine": {"port": 8123}},
    {"replicas": 0},
    {"replicas": 2, "engine": NEW, "roles": [{"name": "both", "minReplicas": 2, "maxReplicas": 3}]},
    {"replicas": 2, "slo": {"task": [{"name": "default", "turnTime": "10m"}]}, "routing": {"migrations": "Paused"}},
    # specs that leave another state behind: a pool never ends a history with one of these
    {"replicas": 2, "routing": {"policy": "dualmap", "parameters": {"slo_fraction": "most"}}},
    {"replicas": 2, "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 4}], "scaling": BY_SLO},
    {"replicas": 2, "rollout": {"paused": True}, "engine": {"simulated": {"decodeStep": "11ms"}}},
    {"replicas": 3, "rollout": {"canary": {"steps": [{"share": 30}]}}, "engine": {"simulated": {"decodeStep": "12ms"}}},
    {"replicas": 2, "scaling": {"schedules": [ALWAYS]}},
)
PREFILL_AND_DECODE: Spec = {"replicas": 1, "routing": {"policy": "static-pd"}}
DIVIDED: tuple[Spec, ...] = (
    {**PREFILL_AND_DECODE, "roles": [{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 1}]},
    {**PREFILL_AND_DECODE, "roles": [{"name": "decode", "replicas": 3}, {"name": "prefill", "replicas": 1}], "engine": NEW},
    {**PREFILL_AND_DECODE, "roles": [{"name": "prefill"}, {"name": "decode", "maxReplicas": 4}]},
    {**PREFILL_AND_DECODE, "roles": [{"name": "prefill"}, {"name": "decode"}], "ratio": {"mode": "Auto", "method": "RoleFlip"}},
    {**PREFILL_AND_DECODE, "roles": [{"name": "prefill"}, {"name": "decode"}], "scaling": {"mode": "SLO"}},
)
LASTING_WHOLE, LASTING_DIVIDED = 5, 2
"""The number of specs, counted from the first, with which a history may end."""

NOT_READY = {"type": "Ready", "status": "False"}
STATUSES: tuple[dict[str, Any], ...] = (
    {"phase": "Failed", "reason": "Evicted"},
    {"phase": "Succeeded"},
    {"phase": "Pending", "containerStatuses": [{"name": "engine", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
    {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    {"phase": "Running", "podIP": "1", "conditions": [NOT_READY, {"type": "ContainersReady", "status": "False"}]},
    {"phase": "Running", "podIP": "1", "conditions": [NOT_READY, {"type": "ContainersReady", "status": "True"}]},
)
CHILDREN = (Resource.BUDGETS, Resource.SERVICES, Resource.ROLES, Resource.REVISIONS)
REFUSED = [(verb, kind) for verb in ("create", "merge", "delete", "get", "find") for kind in (Resource.POOLS, Resource.PODS, *CHILDREN)]
LABELS = frozenset({"fairlead.dev/pool", "fairlead.dev/instance", "app.kubernetes.io/managed-by"})
CODES = (403, 409, 410, 422, 429, 500, None)


def _pod(stage: VirtualStage, number: int) -> dict[str, Any] | None:
    pods = stage.pods()
    return pods[number % len(pods)] if pods else None


def _own_pod(stage: VirtualStage, number: int) -> dict[str, Any] | None:
    """Return a pod with its owner and its labels. A pod that lost both would belong to nobody and is left alone."""
    pods = [pod for pod in stage.pods() if pod["metadata"].get("ownerReferences") and pod["metadata"]["labels"].keys() >= LABELS]
    return pods[number % len(pods)] if pods else None


def is_away(stage: VirtualStage, number: int) -> None:
    stage.api.up = number % 2 == 0


def turns_into(stage: VirtualStage, number: int) -> None:
    if (pod := _pod(stage, number)) is not None:
        pod["status"] = copy.deepcopy(STATUSES[number % len(STATUSES)])


def loses_its_status(stage: VirtualStage, number: int) -> None:
    status = stage.pool().get("status") or {}
    names = sorted(status)[number % (len(status) + 1) :][:1] if number % 2 else list(status)
    for name in names:
        del status[name]


def is_restarted(stage: VirtualStage, number: int) -> None:
    stage.restart()


def is_refused(stage: VirtualStage, number: int) -> None:
    wanted, code = REFUSED[number % len(REFUSED)], CODES[number % len(CODES)]

    def refuse(verb: str, resource: Resource, name: str) -> ClusterRefused | ClusterUnavailable | None:
        if (verb, resource) != wanted:
            return None
        is_away = code is None or code == 429 or code >= 500
        return ClusterUnavailable("away", status=code) if is_away else ClusterRefused(code or 0, "Refused", "refused here")

    stage.cluster.refuse = refuse


def is_refused_no_more(stage: VirtualStage, number: int) -> None:
    stage.cluster.refuse = lambda verb, resource, name: None


def loses_its_finalizer(stage: VirtualStage, number: int) -> None:
    stage.pool()["metadata"]["finalizers"] = []


def loses_a_mark(stage: VirtualStage, number: int) -> None:
    if (pod := _own_pod(stage, number)) is not None:
        place = pod["metadata"]["labels" if number % 2 else "annotations"]
        place.pop(sorted(place)[number % len(place)], None)


def loses_its_owner(stage: VirtualStage, number: int) -> None:
    if (pod := _own_pod(stage, number)) is not None:
        pod["metadata"].pop("ownerReferences", None)


def is_deleted_by_force(stage: VirtualStage, number: int) -> None:
    if (pod := _pod(stage, number)) is not None:
        del stage.cluster.objects[Resource.PODS, pod["metadata"]["name"]]


def is_deleted(stage: VirtualStage, number: int) -> None:
    if (pod := _pod(stage, number)) is not None:
        pod["metadata"] |= TERMINATING


def is_marked_by_a_person(stage: VirtualStage, number: int) -> None:
    if (pod := _pod(stage, number)) is not None:
        pod["metadata"]["annotations"][("fairlead.dev/cordoned", "fairlead.dev/drain")[number % 2]] = "true"


def is_measured(stage: VirtualStage, number: int) -> None:
    stage.api.signals = pool_signals(role_signals(prompt_tokens_per_second=(0.0, 1600.0, 6000.0)[number % 3]))


def loses_a_child(stage: VirtualStage, number: int) -> None:
    children = sorted((kind.name, name) for kind, name in stage.cluster.objects if kind in CHILDREN)
    if children:
        kind, name = children[number % len(children)]
        del stage.cluster.objects[Resource[kind], name]
        if stage.reconciler is not None:
            stage.reconciler.children_changed()


def is_scaled_by_role(stage: VirtualStage, number: int) -> None:
    for role in stage.cluster.all(Resource.ROLES):
        role["spec"]["replicas"] = number % 4


ACTS: Mapping[str, Callable[[VirtualStage, int], None]] = {
    act.__name__: act
    for act in (
        is_away,
        turns_into,
        loses_its_status,
        is_restarted,
        is_refused,
        is_refused_no_more,
        loses_its_finalizer,
        loses_a_mark,
        loses_its_owner,
        is_deleted_by_force,
        is_deleted,
        is_marked_by_a_person,
        is_measured,
        loses_a_child,
        is_scaled_by_role,
    )
}
HISTORIES = st.lists(st.tuples(st.sampled_from(["apply", "apply", "wait", "wait", *ACTS]), st.integers(0, 999)), min_size=8, max_size=14)


async def rounds(stage: VirtualStage, count: int, seconds: float) -> None:
    for _ in range(count):
        stage.now += seconds
        with suppress(ClusterError):  # the worker repeats such a round
            await stage.round()
        for pod in stage.pods():
            if pod["metadata"].get("deletionTimestamp"):
                del stage.cluster.objects[Resource.PODS, pod["metadata"]["name"]]


async def live(stage: VirtualStage, specs: tuple[Spec, ...], history: list[tuple[str, int]]) -> None:
    stage.apply(**copy.deepcopy(specs[0]))
    await stage.settle()
    for name, number in history:
        if name == "apply":
            stage.apply(**copy.deepcopy(specs[number % len(specs)]))
        elif name == "wait":
            stage.pods_become_ready()
            await rounds(stage, 4, (1.0, 30.0, 200.0)[number % 3])
        else:
            ACTS[name](stage, number)
        await rounds(stage, number % 3, 1.0)


def heal(stage: VirtualStage) -> None:
    """Remove all obstacles, and all requests other than the spec."""
    stage.api.up, stage.api.signals = True, None
    is_refused_no_more(stage, 0)
    for pod in stage.pods():
        for mark in ("fairlead.dev/cordoned", "fairlead.dev/drain"):
            pod["metadata"]["annotations"].pop(mark, None)


def shown(stage: VirtualStage) -> dict[str, Any]:
    """Return the status and the objects, without parts that describe the past."""
    past = {"lastOrdinal", "scaling", "currentRevision", "updateRevision", "specInForce", "schedules"}
    status = {name: value for name, value in stage.pool()["status"].items() if name not in past}
    conditions = [{name: value for name, value in one.items() if name != "lastTransitionTime"} for one in status["conditions"]]
    roles = [{name: value for name, value in role.items() if name != "lastScale"} for role in status["roles"]]
    objects = sorted((kind.name, name) for kind, name in stage.cluster.objects if kind not in (Resource.PODS, Resource.REVISIONS))
    generation = stage.pool()["metadata"]["generation"]
    assert all(one.pop("observedGeneration") == generation for one in (*conditions, status))
    open_ = [line["name"] for line in stage.pool()["status"].get("schedules") or () if "opened" in line]
    return {**status, "conditions": conditions, "roles": roles, "objects": objects, "pods": len(stage.pods()), "open": open_}


async def left_alone(stage: VirtualStage, spec: Spec, until: dict[str, Any] | None) -> dict[str, Any]:
    """Return the final state: as soon as it equals `until`, or when it has stayed the same for a while."""
    heal(stage)
    stage.apply(**copy.deepcopy(spec))
    found: dict[str, Any] = {}
    for _ in range(40):
        before = found
        for _ in range(4):
            stage.pods_become_ready()
            await rounds(stage, 1, 5.0)
        with suppress(AssertionError):
            found = shown(stage)
        if found and found == (before if until is None else until):
            break
    return found


@cache
def new_pool(is_divided: bool, last: int) -> dict[str, Any]:
    """Return the final state of a new pool with this spec."""
    shown = asyncio.run(left_alone(VirtualStage(), (DIVIDED if is_divided else WHOLE)[last], None))
    assert [one["status"] for one in shown["conditions"] if one["type"] in {"Ready", "Progressing", "Degraded"}] == [
        "True",
        "False",
        "False",
    ]
    return shown


@pytest.mark.parametrize("is_divided", [False, True], ids=["one role", "prefill and decode"])
@given(history=HISTORIES, last=st.integers(0, 999))
@example(history=[("apply", 1), ("wait", 0), ("apply", 7), ("wait", 1)], last=0)
@examples(200)
def test_a_pool_that_is_left_alone_ends_as_a_new_one_whatever_came_before(
    is_divided: bool, history: list[tuple[str, int]], last: int
) -> None:
    specs, number = (DIVIDED, last % LASTING_DIVIDED) if is_divided else (WHOLE, last % LASTING_WHOLE)
    new = new_pool(is_divided, number)

    async def play() -> dict[str, Any]:
        stage = VirtualStage()
        await live(stage, specs, history)
        return await left_alone(stage, specs[number], new)

    assert asyncio.run(play()) == new
