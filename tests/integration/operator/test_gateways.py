"""A pool with a gateway, on a real API: its GAIE `InferencePool` by server-side apply, and the status that gateways
set.

The operator uses exactly the rights that the chart gives it for that.
"""

from pathlib import Path
from typing import Any

from fairlead_testing.running.chart import granted, is_there, rights_of
from fairlead_testing.running.operator_process import DEFINITIONS, Stage, eventually
from fairlead_testing.running.recording_proxy import RecordingProxy
from fairlead_testing.worlds.chart_values import EXTERNAL, merged
from fairlead_testing.worlds.gateway_definitions import GATEWAY_POOLS, OBJECTIVE_DEFINITION, OBJECTIVES, POOL_DEFINITION, define, judge

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ROUTERS = "/apis/discovery.k8s.io/v1/namespaces/routers/endpointslices"

FOUND_TO_REMOVE = {("inference.networking.k8s.io", "inferencepools", "get"), ("discovery.k8s.io", "endpointslices", "list")}
"""Rights by which the operator finds the objects that it removes."""

CREATED_BY_APPLY = {("inference.networking.k8s.io", "inferencepools", "create"), ("discovery.k8s.io", "endpointslices", "create")}
"""Rights that a server demands of an apply that creates; the request itself is a patch."""


def routers_at(stage: Stage, *addresses: str) -> None:
    """Create the routers' EndpointSlice with these addresses in a namespace of its own."""
    if not is_there(stage.client, "/api/v1/namespaces/routers"):
        stage.client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "routers"}})
    document = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "picker-1", "namespace": "routers", "labels": {"kubernetes.io/service-name": "picker"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
        "ports": [{"name": "grpc", "port": 8002, "protocol": "TCP"}],
    }
    stage.client.call("PATCH", f"{ROUTERS}/picker-1?fieldManager=tests&force=true", document, content="application/apply-patch+yaml")


def reason(stage: Stage, name: str) -> str:
    return str(stage.condition(name, "GatewayReady").get("reason"))


def addresses(stage: Stage, name: str) -> list[str]:
    found = stage.client.call("GET", f"{SLICES}/{name}-picker-ipv4")
    return [address for one in found["endpoints"] for address in one["addresses"]]


def test_gateways_find_the_pool_say_what_they_think_and_lose_it_again(proxied: tuple[Stage, RecordingProxy], tmp_path: Path) -> None:
    stage, proxy = proxied
    client = stage.client
    proxy.start()
    stage.operator.settings |= {"FAIRLEAD_WATCH_NAMESPACES": "default", "FAIRLEAD_PICKER_SERVICE": "routers/picker"}
    stage.operator.start()
    routers_at(stage, "10.1.0.1")
    if is_there(client, f"{DEFINITIONS}/{POOL_DEFINITION['metadata']['name']}"):
        client.call("DELETE", f"{DEFINITIONS}/{POOL_DEFINITION['metadata']['name']}")

    stage.apply("shown", replicas=1, gateway={})
    stage.settle("shown", 1)
    eventually(lambda: reason(stage, "shown") == "DefinitionMissing", "what is missing is told")
    define(client, POOL_DEFINITION)
    eventually(lambda: reason(stage, "shown") == "NoGateway", "the definition is noticed")

    child = client.call("GET", f"{GATEWAY_POOLS}/shown")
    (ours,) = [one for one in child["metadata"]["managedFields"] if one["manager"] == "fairlead-operator"]
    assert ours["operation"] == "Apply"
    assert child["metadata"]["ownerReferences"][0]["name"] == "shown"
    assert child["spec"]["endpointPickerRef"]["name"] == "shown-picker"
    assert addresses(stage, "shown") == ["10.1.0.1"]
    routers_at(stage, "10.1.0.1", "10.1.0.2")
    eventually(lambda: addresses(stage, "shown") == ["10.1.0.1", "10.1.0.2"], "routers that come are led to")

    judge(client, "shown", "public", Accepted=("True", "Accepted"), ResolvedRefs=("True", "ResolvedRefs"))
    eventually(lambda: reason(stage, "shown") == "Accepted", "the gateway's word is the condition")
    stage.edit("shown", {"gateway": {"failureMode": "FailOpen"}})
    eventually(lambda: picker(stage, "shown")["failureMode"] == "FailOpen", "the change arrives")
    assert client.call("GET", f"{GATEWAY_POOLS}/shown")["status"]["parents"], "what gateways wrote stays"

    define(client, OBJECTIVE_DEFINITION)
    objective = {"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": "search"}}
    client.call("POST", OBJECTIVES, {**objective, "spec": {"priority": 50, "poolRef": {"name": "shown"}}})
    eventually(lambda: classes(stage, "shown") == {"search": 50}, "the objective is told to the control API")
    client.call("DELETE", f"{OBJECTIVES}/search")
    eventually(lambda: classes(stage, "shown") == {}, "it is told no more")

    theirs = {"selector": {"matchLabels": {"app": "theirs"}}, "targetPorts": [{"number": 80}]}
    body = {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "taken"}, "spec": theirs}
    before = client.call("POST", GATEWAY_POOLS, body)
    stage.apply("taken", replicas=0, gateway={})
    eventually(lambda: reason(stage, "taken") == "ChildNotOurs", "the collision is told")
    assert client.call("GET", f"{GATEWAY_POOLS}/taken") == before

    stage.edit("shown", {"gateway": None})
    for path in (f"{GATEWAY_POOLS}/shown", f"{SERVICES}/shown-picker", f"{SLICES}/shown-picker-ipv4"):
        eventually(lambda path=path: not is_there(client, path), f"{path} is gone")  # type: ignore[misc]
    eventually(lambda: not stage.condition("shown", "GatewayReady"), "nothing is said of gateways any more")
    stage.edit("shown", {"gateway": {}})
    eventually(lambda: is_there(client, f"{GATEWAY_POOLS}/shown"), "it is shown again")
    stage.delete("shown")
    eventually(lambda: not is_there(client, f"{GATEWAY_POOLS}/shown"), "it goes with the pool")

    values = merged(EXTERNAL, {"operator": {"watchNamespaces": ["default"]}})
    without = granted(rights_of("operator", tmp_path / "without", values=values))
    rights = granted(rights_of("operator", tmp_path / "with", values=merged(values, {"router": {"picker": {"enabled": True}}})))
    assert proxy.asked <= rights
    removing = {right for right in proxy.asked if right[2] == "delete"} | FOUND_TO_REMOVE
    assert ("inference.networking.k8s.io", "inferencepools", "delete") in removing
    assert removing <= without, "what a picker made can be removed once it is switched off"
    assert rights - without - CREATED_BY_APPLY <= proxy.asked


def picker(stage: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stage.client.call("GET", f"{GATEWAY_POOLS}/{name}")["spec"]["endpointPickerRef"]
    return found


def classes(stage: Stage, name: str) -> dict[str, int]:
    """Return the priorities of the classes that objectives declare, as the control API received them last."""
    state = stage.told_state(f"default/{name}")
    return {one.name: one.priority for one in state.objectives} if state is not None else {}
