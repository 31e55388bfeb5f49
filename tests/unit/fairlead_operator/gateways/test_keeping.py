"""A pool with `gateways` has a GAIE InferencePool of its name as long as its spec asks for it, and no longer."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.settings import PickerSettings, ServiceName
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

BESIDE = ServiceName(namespace="default", name="fairlead-picker")
ELSEWHERE = ServiceName(namespace="fairlead-system", name="fairlead-picker")


def staged(service: ServiceName | None = BESIDE) -> VirtualStage:
    """Return a stage whose operator knows the routers' Service, which exists if it is in the pool's namespace."""
    stage = VirtualStage(settings=replace(SETTINGS, picker=PickerSettings(service=service)))
    if service == BESIDE:
        ports = [{"name": "grpc", "port": 9002, "targetPort": "picker"}]
        stage.cluster.put(Resource.SERVICES, {"metadata": {"name": service.name}, "spec": {"selector": {"app": "router"}, "ports": ports}})
    return stage


async def asking(stage: VirtualStage, **gateway: Any) -> VirtualStage:
    """Return the stage with a pool that asks for gateways."""
    stage.apply(gateway=gateway)
    await stage.settle()
    return stage


def shown(stage: VirtualStage) -> dict[str, Any]:
    return stage.cluster.objects[Resource.GATEWAY_POOLS, "chat"]


def ready(stage: VirtualStage) -> tuple[str, str]:
    condition = stage.condition("GatewayReady")
    return condition["status"], condition["reason"]


def conditions(stage: VirtualStage) -> set[str]:
    return {one["type"] for one in stage.pool()["status"]["conditions"]}


def judge(stage: VirtualStage, **conditions: tuple[str, str]) -> None:
    """Write a gateway's conditions to the status of the pool's `InferencePool`."""
    told = [{"type": kind, "status": status, "reason": reason, "message": "because"} for kind, (status, reason) in conditions.items()]
    stage.cluster.put(
        Resource.GATEWAY_POOLS,
        shown(stage) | {"status": {"parents": [{"parentRef": {"name": "public", "namespace": "infra"}, "conditions": told}]}},
    )


def routers_at(stage: VirtualStage, *addresses: str) -> None:
    """Write the routers' EndpointSlice, in their own namespace."""
    stage.cluster.put(
        Resource.ENDPOINT_SLICES,
        {
            "metadata": {"name": "fairlead-picker-abc", "labels": {"kubernetes.io/service-name": "fairlead-picker"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
            "ports": [{"name": "grpc", "port": 9002, "protocol": "TCP"}],
        },
    )


async def test_the_child_selects_the_pools_pods_and_names_a_service_that_leads_to_the_routers() -> None:
    stage = await asking(staged())
    child = shown(stage)
    assert child["spec"] == {
        "selector": {"matchLabels": {"fairlead.dev/pool": "chat"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"group": "", "kind": "Service", "name": "chat-picker", "port": {"number": 9002}, "failureMode": "FailClose"},
    }
    (owner,) = child["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (stage.pool()["metadata"]["uid"], True)
    service = stage.cluster.objects[Resource.SERVICES, "chat-picker"]["spec"]
    assert service["selector"] == {"app": "router"}
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(9002, "picker")]
    assert all(pod["metadata"]["labels"]["fairlead.dev/pool"] == "chat" for pod in stage.pods())
    assert ready(stage) == ("Unknown", "NoGateway")


async def test_what_the_spec_says_reaches_the_child_and_a_strangers_change_of_it_is_taken_back() -> None:
    stage = await asking(staged())
    await asking(stage, failureMode="FailOpen")
    assert shown(stage)["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen"
    child = shown(stage)
    child["spec"]["targetPorts"] = [{"number": 1}]
    stage.cluster.put(Resource.GATEWAY_POOLS, child)
    stage.reconciler.changed()  # type: ignore[union-attr]  # it is there after the first round
    await stage.settle()
    assert shown(stage)["spec"]["targetPorts"] == [{"number": 8000}]


class WithGaieOne(FakeCluster):
    """A cluster with the CRD of GAIE 1.0, which allows one target port."""

    async def apply(self, resource: Resource, namespace: str, body: dict[str, Any], *, force: bool) -> dict[str, Any]:
        if resource is Resource.GATEWAY_POOLS and len(body["spec"]["targetPorts"]) > 1:
            raise ClusterRefused(422, "Invalid", "spec.targetPorts: Too many: 2: must have at most 1 items")
        return await super().apply(resource, namespace, body, force=force)


async def rolled_to_another_port(stage: VirtualStage) -> VirtualStage:
    """Return a pool of which one instance listens at the new port and the other at the old one."""
    await asking(stage)
    stage.apply(gateway={}, engine={"port": 8123})
    for _ in range(3):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
    return stage


async def test_while_a_port_is_rolled_out_gateways_have_the_ports_of_all_instances() -> None:
    stage = await rolled_to_another_port(staged())
    assert shown(stage)["spec"]["targetPorts"] == [{"number": 8000}, {"number": 8123}]
    for _ in range(20):
        await stage.settle()
    assert shown(stage)["spec"]["targetPorts"] == [{"number": 8123}]


async def test_a_definition_that_takes_one_port_has_that_of_most_instances() -> None:
    stage = staged()
    stage.cluster = WithGaieOne(objects=stage.cluster.objects, version=stage.cluster.version)
    await rolled_to_another_port(stage)
    assert shown(stage)["spec"]["targetPorts"] == [{"number": 8000}]
    for _ in range(20):
        await stage.settle()
    assert shown(stage)["spec"]["targetPorts"] == [{"number": 8123}]
    assert ready(stage) == ("Unknown", "NoGateway")


async def test_a_settled_pool_applies_its_child_once() -> None:
    stage = await asking(staged())
    for _ in range(20):
        stage.now += 60
        await stage.round()
    assert [name for verb, _, name in stage.cluster.calls if verb == "apply"] == ["chat-picker", "chat"]


async def test_what_a_gateway_says_becomes_the_condition_as_soon_as_it_is_looked_for() -> None:
    stage = await asking(staged())
    await stage.look_at_gateways()
    await stage.settle()
    for said, told in (
        ({"Accepted": ("True", "Accepted")}, ("True", "Accepted")),
        ({"Accepted": ("True", "Accepted"), "ResolvedRefs": ("False", "InvalidExtensionRef")}, ("False", "RefsNotResolved")),
        ({"Accepted": ("False", "NotSupportedByParent")}, ("False", "NotAccepted")),
    ):
        judge(stage, **said)
        assert await stage.look_at_gateways() == 1
        await stage.settle()
        assert ready(stage) == told
        assert await stage.look_at_gateways() == 0, "nothing new"
    assert "Gateway infra/public: NotSupportedByParent (because)" in stage.condition("GatewayReady")["message"]


async def test_what_a_gateway_said_of_an_earlier_generation_does_not_count() -> None:
    stage = await asking(staged())
    judge(stage, Accepted=("True", "Accepted"))
    child = shown(stage)
    child["metadata"]["generation"] = 2
    child["status"]["parents"][0]["conditions"][0]["observedGeneration"] = 1
    stage.cluster.put(Resource.GATEWAY_POOLS, child)
    await stage.look_at_gateways()
    await stage.settle()
    assert ready(stage) == ("Unknown", "NotJudgedYet")


async def test_a_field_that_is_taken_away_takes_the_child_and_the_condition_away() -> None:
    stage = await asking(staged())
    stage.apply()
    await stage.settle()
    assert (Resource.GATEWAY_POOLS, "chat") not in stage.cluster.objects
    assert "GatewayReady" not in conditions(stage)
    before = len(stage.cluster.calls)
    stage.now += 100
    await stage.round()
    assert not [call for call in stage.cluster.calls[before:] if call[1] is Resource.GATEWAY_POOLS], "it is not looked for again"


async def test_a_child_that_an_operator_made_and_died_before_it_told_is_found_by_the_next_one() -> None:
    stage = await asking(staged())
    stage.pool()["status"]["conditions"] = []
    stage.apply()
    stage.restart()
    await stage.settle()
    assert (Resource.GATEWAY_POOLS, "chat") not in stage.cluster.objects


async def test_a_child_that_cannot_be_removed_is_told_until_it_is() -> None:
    stage = await asking(staged())
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", "not yours") if (verb, resource) == ("delete", Resource.GATEWAY_POOLS) else None
    )
    stage.apply()
    await stage.settle()
    assert ready(stage) == ("False", "ActionFailed")
    stage.cluster.refuse = lambda verb, resource, name: None
    stage.now += 300
    await stage.settle()
    assert (Resource.GATEWAY_POOLS, "chat") not in stage.cluster.objects
    assert "GatewayReady" not in conditions(stage)


async def test_an_object_of_that_name_and_another_owner_is_left_alone_and_named() -> None:
    stage = staged()
    theirs = stage.cluster.put(Resource.GATEWAY_POOLS, {"metadata": {"name": "chat", "namespace": "default"}, "spec": {"theirs": True}})
    await asking(stage)
    assert shown(stage) == theirs
    assert ready(stage) == ("False", "ChildNotOurs")
    assert "InferencePool default/chat exists and belongs to no pool" in stage.condition("GatewayReady")["message"]
    assert "ChildNotOurs" in stage.reasons()
    assert stage.condition("Ready")["status"] == "True", "the pool serves"
    stage.apply()
    await stage.settle()
    assert shown(stage) == theirs


async def test_a_child_that_an_earlier_pool_left_is_taken_over() -> None:
    stage = await asking(staged())
    left = shown(stage)
    del left["metadata"]["ownerReferences"]
    stage.cluster.put(Resource.GATEWAY_POOLS, left)
    stage.restart()
    await stage.settle()
    assert shown(stage)["metadata"]["ownerReferences"][0]["uid"] == stage.pool()["metadata"]["uid"]


async def test_without_gaies_definition_the_pool_serves_says_what_is_missing_and_notices_when_it_comes() -> None:
    stage = staged()
    stage.cluster.unknown = {Resource.GATEWAY_POOLS}
    await asking(stage)
    assert ready(stage) == ("False", "DefinitionMissing")
    assert "inferencepools.inference.networking.k8s.io" in stage.condition("GatewayReady")["message"]
    assert stage.condition("Ready")["status"] == "True"
    assert stage.condition("Degraded")["status"] == "False"
    await stage.look_at_gateways()
    await stage.settle()
    assert await stage.look_at_gateways() == 0
    stage.cluster.unknown = set()
    assert await stage.look_at_gateways() == 1
    await stage.settle()
    assert ready(stage) == ("Unknown", "NoGateway")


async def test_an_operator_that_knows_of_no_picker_says_so_and_asks_for_nothing() -> None:
    stage = await asking(staged(None))
    assert ready(stage) == ("False", "NoPicker")
    assert "router.picker.enabled" in stage.condition("GatewayReady")["message"]
    assert not [call for call in stage.cluster.calls if call[1] in {Resource.GATEWAY_POOLS, Resource.ENDPOINT_SLICES}]


async def test_a_pool_that_asks_for_no_gateway_costs_one_look_for_a_forgotten_child() -> None:
    stage = staged()
    stage.apply()
    await stage.settle()
    for _ in range(5):
        stage.now += 60
        await stage.round()
    assert await stage.look_at_gateways() == 0
    assert [call for call in stage.cluster.calls if call[1] is Resource.GATEWAY_POOLS] == [("get", Resource.GATEWAY_POOLS, "chat")]


@pytest.mark.parametrize("service", [ServiceName(namespace="default", name="typo"), ELSEWHERE])
async def test_a_service_that_leads_nowhere_is_told(service: ServiceName) -> None:
    stage = await asking(staged(service))
    assert ready(stage) == ("False", "NoPicker")
    assert f"{service.namespace}/{service.name}" in stage.condition("GatewayReady")["message"]
    assert (Resource.GATEWAY_POOLS, "chat") not in stage.cluster.objects


async def test_routers_of_another_namespace_are_led_to_by_a_service_of_the_pools_own() -> None:
    stage = staged(ELSEWHERE)
    routers_at(stage, "10.0.0.1", "10.0.0.2")
    await asking(stage)
    service = stage.cluster.objects[Resource.SERVICES, "chat-picker"]
    assert "selector" not in service["spec"]
    assert [port["port"] for port in service["spec"]["ports"]] == [9002]
    slices = stage.cluster.objects[Resource.ENDPOINT_SLICES, "chat-picker-ipv4"]
    assert slices["metadata"]["labels"]["kubernetes.io/service-name"] == "chat-picker"
    assert [one["addresses"] for one in slices["endpoints"]] == [["10.0.0.1"], ["10.0.0.2"]]
    assert slices["ports"][0]["port"] == 9002


async def test_routers_that_move_are_followed() -> None:
    stage = staged(ELSEWHERE)
    routers_at(stage, "10.0.0.1")
    await asking(stage)
    await stage.look_at_gateways()
    routers_at(stage, "10.0.0.9")
    assert await stage.look_at_gateways() == 1
    await stage.settle()
    found = stage.cluster.objects[Resource.ENDPOINT_SLICES, "chat-picker-ipv4"]
    assert [one["addresses"] for one in found["endpoints"]] == [["10.0.0.9"]]
    stage.apply()
    await stage.settle()
    left = {name for resource, name in stage.cluster.objects if resource in {Resource.ENDPOINT_SLICES, Resource.SERVICES}}
    assert left == {"fairlead-picker-abc", "chat"}, "the routers' own and the pool's headless Service stay"


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ([("health", 9003), ("grpc", 9102)], 9102),
        ([("health", 9003), ("picker", 9002)], 9002),
        ([("picker", 9102)], 9102),
    ],
)
async def test_the_routers_port_is_found_among_others(ports: list[tuple[str, int]], port: int) -> None:
    stage = staged(ELSEWHERE)
    routers_at(stage, "10.0.0.1")
    document = stage.cluster.objects[Resource.ENDPOINT_SLICES, "fairlead-picker-abc"]
    told = [{"name": name, "port": number, "protocol": "TCP"} for name, number in ports]
    stage.cluster.put(Resource.ENDPOINT_SLICES, {**document, "ports": told})
    await asking(stage)
    assert stage.cluster.objects[Resource.ENDPOINT_SLICES, "chat-picker-ipv4"]["ports"][0]["port"] == port


async def test_while_no_router_is_there_nothing_leads_to_where_they_were() -> None:
    stage = staged(ELSEWHERE)
    routers_at(stage, "10.0.0.1")
    await asking(stage)
    routers_at(stage)
    stage.cluster.put(Resource.ENDPOINT_SLICES, {**stage.cluster.objects[Resource.ENDPOINT_SLICES, "fairlead-picker-abc"], "ports": None})
    await stage.look_at_gateways()
    await stage.settle()
    assert (Resource.ENDPOINT_SLICES, "chat-picker-ipv4") not in stage.cluster.objects
    assert ready(stage) == ("False", "NoPicker")
    assert "has no router at present" in stage.condition("GatewayReady")["message"]
    routers_at(stage, "10.0.0.9")
    await stage.look_at_gateways()
    await stage.settle()
    found = stage.cluster.objects[Resource.ENDPOINT_SLICES, "chat-picker-ipv4"]
    assert [one["addresses"] for one in found["endpoints"]] == [["10.0.0.9"]]


async def test_looking_survives_a_cluster_that_does_not_answer() -> None:
    stage = await asking(staged())
    stage.cluster.refuse = lambda verb, resource, name: ClusterUnavailable("connection refused")
    with pytest.raises(ClusterUnavailable):
        await stage.look_at_gateways()
