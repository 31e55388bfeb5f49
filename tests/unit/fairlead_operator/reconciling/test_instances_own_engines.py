"""While a template is rolled out, each pod is reported with the port and figures of its own engine, not with those of
the present spec.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine_specs import EngineSpec
from fairlead.instances import Role
from fairlead.pool_states import InstanceReport
from fairlead.pools import parse_spec
from fairlead.schemas.shapes import document_name
from fairlead.tables import InstanceEngine
from fairlead_operator.cluster import Resource
from fairlead_operator.manifests import pod
from fairlead_operator.observing.pod_engines import PodEngine, by_template, pod_engine, shown_ports
from fairlead_operator.observing.pods import read_pods
from fairlead_operator.pod_templates import SELECTED_HASH
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_testing.examples import examples
from fairlead_testing.worlds.operator_stages import VirtualStage

PODS_OWN = {
    "type": "vllm",
    "port": 8123,
    "metrics.path": "/stats",
    "metrics.kvUsage": "old:usage",
    "passClientCredentials": True,
    "prefillTokensPerSecond": 1000,
    "kvCacheTokens": 5000,
}
"""The reported fields of each instance, with a value that is not the default."""

TEMPLATE_ONLY = {
    "simulated.timeScale": 2,
    "simulated.blockSize": 32,
    "simulated.decodeStep": "30ms",
    "simulated.maxRunning": 7,
    "simulated.maxWaiting": 8,
    "simulated.startup": "2s",
}
"""The fields with which an engine is started. `timeScale` is part of its reported speed; the others are not reported.
"""

POOLS_OWN = {
    "bytesPerToken": 3,
    "passPriority": True,
    "canary": True,
    "replaceStalledAfter": "9s",
    "kvTransfer.kind": "Nixl",
    "kvTransfer.when": "Always",
    "kvTransfer.longest": "9s",
    "kvTransfer.copies": "Pays",
    "kvTransfer.tokensPerSecond": 9,
    "kvTransfer.storeTokens": 9,
    "kvTransfer.storeMedium": "cpu",
}
"""The fields that apply to all instances of a pool, whatever their templates.

Rings are keyed by blocks of bytes, so all instances of a pool need the same size of block. An engine is not started
with the rules by which hanging engines are found and replaced. Whether an engine hands KV blocks on is asked of it, and
no blocks are moved between instances of two revisions.
"""

IDENTITY = PoolIdentity(namespace="default", name="chat", uid="u1")
TEMPLATE = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}


def leaves(of: type[Any], path: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a section of the spec, including fields of nested sections."""
    hints = get_type_hints(of)
    for item in fields(of):
        inner = next((kind for kind in (hints[item.name], *get_args(hints[item.name])) if is_dataclass(kind)), None)
        name = f"{path}{document_name(item)}"
        if isinstance(inner, type):
            yield from leaves(inner, f"{name}.")
        else:
            yield name


def section(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section `engine` with these fields."""
    found: dict[str, Any] = {}
    for path, value in changed.items():
        place = found
        *sections, name = path.split(".")
        for one in sections:
            place = place.setdefault(one, {})
        place[name] = value
    return found


def test_of_every_field_of_the_engine_it_is_said_whose_fact_it_is() -> None:
    assert sorted(leaves(EngineSpec)) == sorted([*PODS_OWN, *TEMPLATE_ONLY, *POOLS_OWN])
    assert {item.name for item in fields(InstanceEngine)} == {
        "type",
        "metrics_path",
        "kv_usage_metric",
        "pass_client_credentials",
        "prefill_tokens_per_second",
        "kv_cache_tokens",
    }, "the port is in the address"


def own(stage: VirtualStage) -> dict[str, InstanceReport]:
    return {item.id: item for item in stage.api.states[-1].instances}


async def serving(**spec: Any) -> VirtualStage:
    stage = VirtualStage()
    stage.apply(replicas=2, **spec)
    await stage.settle()
    return stage


@pytest.mark.parametrize("path", [path for path in (*PODS_OWN, *TEMPLATE_ONLY) if path != "type"])
async def test_a_field_that_is_rolled_out_says_nothing_of_the_pods_that_were_made_before(path: str) -> None:
    value = {**PODS_OWN, **TEMPLATE_ONLY}[path]
    stage = await serving(engine={"simulated": {}})
    before = own(stage)
    new = section({path: value, "simulated.maxRunning": 999} if path != "simulated.maxRunning" else {path: value})
    for restart in (False, True):
        stage.apply(replicas=2, engine=new)
        if restart:
            stage.restart()
        for _ in range(3):
            stage.now += 1
            await stage.round()  # no new pod becomes ready
        after = own(stage)
        port = new.get("port", 8000)
        assert {item.address for name, item in after.items() if name in before} == {"127.0.0.9:8000"}
        old = parse_spec({"model": "m"}).facts().engine.of_instance()
        is_other = parse_spec({"model": "m", "engine": new}).facts().engine.of_instance() != old
        assert {item.engine for name, item in after.items() if name in before} == {old if is_other else None}
        assert {item.engine for name, item in after.items() if name not in before} == {None}
        await stage.settle()
        for _ in range(60):
            await stage.settle()
        assert {item.address for item in own(stage).values()} == {f"127.0.0.9:{port}"}
        assert {item.engine for item in own(stage).values()} == {None}
        stage = await serving(engine={"simulated": {}})
        before = own(stage)


async def test_a_figure_that_is_corrected_without_another_template_counts_at_once_and_stays_with_the_template() -> None:
    roles = [{"name": "both", "template": TEMPLATE}]
    stage = await serving(roles=roles, engine={"type": "vllm"})
    corrected = {"type": "vllm", "metrics": {"path": "/right", "kvUsage": "right:gauge"}, "passClientCredentials": True}
    stage.apply(replicas=2, roles=roles, engine=corrected)
    await stage.settle()
    assert {item.engine for item in own(stage).values()} == {None}, "all are as the spec says now"
    before = own(stage)
    newer = {"spec": {"containers": [{"name": "engine", "image": "vllm:2"}]}}
    stage.apply(replicas=2, roles=[{"name": "both", "template": newer}], engine={"type": "vllm", "port": 8123})
    stage.now += 1
    await stage.round()
    found = {own(stage)[name].engine for name in before}
    assert [(one.metrics_path, one.kv_usage_metric, one.pass_client_credentials) for one in found if one is not None] == [
        ("/right", "right:gauge", True)
    ]
    assert {own(stage)[name].address for name in before} == {"127.0.0.9:8000"}


async def test_a_rollback_leaves_each_pod_its_own_port() -> None:
    stage = await serving(engine={"port": 8123})
    stage.apply(replicas=2, engine={"port": 8000})
    for _ in range(4):
        stage.now += 1
        await stage.round()
    first = own(stage)
    assert sorted({item.address for item in first.values()}, key=str) == ["127.0.0.9:8123", None], "the newest has no address yet"
    stage.pods_become_ready()
    stage.apply(replicas=2, engine={"port": 8123})
    stage.now += 1
    await stage.round()
    addresses = {item.address for item in own(stage).values()}
    assert addresses == {"127.0.0.9:8123", "127.0.0.9:8000"}


ENGINES = st.fixed_dictionaries(
    {},
    optional={
        "port": st.sampled_from([8000, 8001, 8002]),
        "prefillTokensPerSecond": st.sampled_from([1000, 2000]),
        "metrics": st.sampled_from([{"path": "/a"}, {"path": "/b"}]),
        "passClientCredentials": st.booleans(),
        "simulated": st.sampled_from([{"maxRunning": 1}, {"maxRunning": 2}]),
    },
)
STEPS = st.lists(st.one_of(ENGINES, st.sampled_from(["ready", "round", "restart", "status lost"])), max_size=14)


@given(STEPS)
@examples(60)
def test_however_templates_follow_each_other_every_pod_is_told_by_its_own(steps: list[dict[str, Any] | str]) -> None:
    asyncio.run(_follow(steps))


async def _follow(steps: list[dict[str, Any] | str]) -> None:
    stage, newest = await serving(engine={"simulated": {"maxRunning": 1}}), dict[str, dict[str, Any]]()
    remember(newest, {"simulated": {"maxRunning": 1}})
    for step in steps:
        if isinstance(step, dict):
            stage.apply(replicas=2, engine=step)
            remember(newest, step)
        elif step == "ready":
            stage.pods_become_ready()
        elif step == "restart":
            stage.restart()
        elif step == "status lost":
            stage.pool().pop("status", None)
        stage.now += 1
        await stage.round()
        check(stage, newest)


def remember(newest: dict[str, dict[str, Any]], engine: dict[str, Any]) -> None:
    newest |= dict.fromkeys(by_template(parse_spec({"model": "m", "engine": engine})), engine)


def check(stage: VirtualStage, newest: Mapping[str, dict[str, Any]]) -> None:
    present = parse_spec(stage.pool()["spec"]).facts().engine
    pods = {body["metadata"]["name"]: body for body in stage.pods()}
    for item in stage.api.states[-1].instances:
        if item.id not in pods:
            continue
        body = pods[item.id]
        arguments = dict(pairwise(body["spec"]["containers"][0]["args"]))
        assert item.address in {None, f"127.0.0.9:{arguments['--port']}"}, "where it listens, by its own arguments"
        made = parse_spec({"model": "m", "engine": newest[body["metadata"]["annotations"]["fairlead.dev/spec-hash"]]})
        assert present.at(item.engine).of_instance() == made.facts().engine.of_instance()


async def test_without_its_revision_a_pods_own_containers_tell_its_port() -> None:
    stage = await serving(engine={"port": 8123})
    for key in [key for key in stage.cluster.objects if key[0] is Resource.REVISIONS]:
        del stage.cluster.objects[key]
    before = own(stage)
    stage.apply(replicas=2, engine={"port": 8000})
    stage.now += 1
    await stage.round()
    assert {own(stage)[name].address for name in before} == {"127.0.0.9:8123"}
    assert "EngineAssumed" not in stage.reasons()


async def test_what_nothing_tells_is_assumed_and_that_is_said_once() -> None:
    stage = await serving(engine={"port": 8123})
    for key in [key for key in stage.cluster.objects if key[0] is Resource.REVISIONS]:
        del stage.cluster.objects[key]
    for body in stage.pods():
        body["spec"]["containers"][0] |= {"ports": [], "readinessProbe": None}
    stage.apply(replicas=2, engine={"port": 8000})
    for _ in range(3):
        stage.now += 1
        await stage.round()
    assert stage.reasons().count("EngineAssumed") == 2


def container(name: str = "engine", declared: tuple[Any, ...] = (), probed: Any = None) -> dict[str, Any]:
    ports = [{"containerPort": one} if isinstance(one, int) else {"name": one[0], "containerPort": one[1]} for one in declared]
    return {"name": name, "ports": ports, **({"readinessProbe": {"httpGet": {"port": probed}}} if probed is not None else {})}


@pytest.mark.parametrize(
    ("containers", "port"),
    [
        ([], 8000),
        ([container()], 8000),
        ([container(declared=(8000,))], 8000),
        ([container(declared=(8123,), probed=8123)], 8123),
        ([container(declared=(8123, 8000), probed=8123)], 8000),
        ([container(declared=(("api", 8123),), probed="api")], 8123),
        ([container(declared=(("http", 8123),))], 8123),
        ([container(probed=8123)], 8123),
        ([container(declared=(9090,))], 8000),
        ([container(declared=(9090,), probed=8123)], 8123),
        ([container("proxy", declared=(("http", 80),), probed=80), container(declared=(8123,), probed=8123)], 8123),
        ([container("vllm", declared=(8123,), probed=8123)], 8123),
    ],
)
def test_an_adopted_pod_is_reached_at_the_declared_port_unless_it_shows_another(containers: list[Any], port: int) -> None:
    present = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "selector": {"matchLabels": {"app": "a"}}}]})
    found = pod_engine(SELECTED_HASH, shown_ports({"containers": containers}), present, by_template(present))
    assert found == PodEngine(port=port)


SIDECAR: dict[str, Any] = {
    "name": "istio-proxy",
    "ports": [{"name": "http-envoy-prom", "containerPort": 15090, "protocol": "TCP"}],
    "readinessProbe": {"httpGet": {"path": "/healthz/ready", "port": 15021}},
}
"""The side-car as Istio injects it; it comes first if the application has to wait for it."""
TURNED = {"readinessProbe": {"httpGet": {"path": "/app-health/vllm/readyz", "port": 15020}}}
"""A readiness probe as Istio rewrites it."""
CALLED = {"kubectl.kubernetes.io/default-container": "vllm"}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    ("engine", "annotations", "port"),
    [
        (container("vllm") | TURNED, CALLED, 8000),
        (container("vllm", declared=(8000,)) | TURNED, {}, 8000),
        (container("vllm", declared=(8000, 9090)) | TURNED, CALLED, 8000),
        (container("vllm", declared=(("http", 8123),)) | TURNED, CALLED, 8123),
        (container("vllm", declared=(8123,), probed=8123), CALLED, 8123),
        (container("engine", declared=(8123,), probed=8123), {}, 8123),
    ],
)
def test_the_port_of_an_injected_sidecar_is_never_taken_for_the_engines(
    engine: dict[str, Any], annotations: dict[str, str], port: int, place: str
) -> None:
    present = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "selector": {"matchLabels": {"app": "a"}}}]})
    containers = [SIDECAR, engine] if place == "before" else [engine, SIDECAR]
    found = pod_engine(SELECTED_HASH, shown_ports({"containers": containers}, annotations), present, by_template(present))
    assert found == PodEngine(port=port)


def test_an_adopted_pods_revision_is_of_its_engines_image_whatever_sidecar_comes_first() -> None:
    spec = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "selector": {"matchLabels": {"app": "a"}}}]})
    statuses = [{"name": "istio-proxy", "image": "proxy:1"}, {"name": "vllm", "image": "vllm:7"}]  # by name, as kubelets sort them
    adopted = {"fairlead.dev/adopted-by": "uid-1", **CALLED}
    document = {
        "metadata": {"name": "a-1", "uid": "u", "labels": {"app": "a"}, "annotations": adopted},
        "spec": {"containers": [SIDECAR, container("vllm")]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": statuses},
    }
    assert [pod.revision for pod in read_pods([document], "uid-1", spec)] == ["m vllm:7"]


def manifest(**spec: Any) -> dict[str, Any]:
    document = parse_spec({"model": "m", **spec})
    return pod(IDENTITY, document, role=Role.BOTH, ordinal=1, image="i", reason="Added", now="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("ports", "named"),
    [
        (None, 8000),
        ([{"containerPort": 8000}], 8000),
        ([{"containerPort": 8000, "name": "api"}], 8000),
        ([{"containerPort": 9090, "name": "metrics"}], 8000),
        ([{"containerPort": 9090, "name": "http"}], 9090),
    ],
)
def test_the_service_finds_the_port_of_every_pod_that_is_made_unless_its_template_gives_the_name_away(ports: Any, named: int) -> None:
    engine = {"name": "engine", "image": "vllm:1", **({"ports": ports} if ports else {})}
    made = manifest(engine={"type": "vllm"}, roles=[{"name": "both", "template": {"spec": {"containers": [engine]}}}])
    assert shown_ports(made["spec"]).named == named
    names = [one["name"] for one in made["spec"]["containers"][0]["ports"] if "name" in one]
    assert len(names) == len(set(names)), "an API server refuses two ports of one name"


async def test_the_service_leads_to_each_pods_own_port_and_says_a_number_where_a_name_would_mislead() -> None:
    stage = await serving(engine={"port": 8123})

    def target() -> object:
        [port] = stage.cluster.objects[Resource.SERVICES, "chat"]["spec"]["ports"]
        return port["port"], port["targetPort"]

    assert target() == (8123, "http")
    stage.apply(replicas=2, engine={"port": 8000})
    stage.now += 1
    await stage.round()
    assert target() == (8000, "http")
    stage.pods()[0]["spec"]["containers"][0]["ports"][0]["name"] = "other"
    stage.restart()
    await stage.round()
    assert target() == (8000, 8000)
