"""docs/gateway-api.md can be copied: every example is YAML, and its parts refer to each other."""

import re
from pathlib import Path
from typing import Any

import yaml

from fairlead.gateway_specs import GATEWAY_GROUP, GATEWAY_KIND, GatewaySpec
from fairlead.pools import GROUP, PoolSpec, parse_spec
from fairlead_operator.gateways.manifests import own_service
from fairlead_operator.settings import PickerSettings

PAGE = (Path(__file__).parents[3] / "docs" / "gateway-api.md").read_text(encoding="utf-8")
EXAMPLES: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
PORT = PickerSettings().port


def example(kind: str) -> dict[str, Any]:
    (found,) = [one for one in EXAMPLES if one.get("kind") == kind]
    return found


def pool() -> tuple[str, PoolSpec]:
    document = example("InferencePool")
    assert document["apiVersion"].startswith(f"{GROUP}/")
    return document["metadata"]["name"], parse_spec(document["spec"])


def test_the_pool_asks_for_gateways_and_every_other_example_is_about_it() -> None:
    name, spec = pool()
    assert spec.gateway == GatewaySpec()
    (rule,) = example("HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"group": GATEWAY_GROUP, "kind": GATEWAY_KIND, "name": name}]
    (parent,) = example("HTTPRoute")["spec"]["parentRefs"]
    assert parent["name"] == example("Gateway")["metadata"]["name"]
    (target,) = example("EnvoyExtensionPolicy")["spec"]["targetRefs"]
    assert target["name"] == example("HTTPRoute")["metadata"]["name"]


def test_whoever_asks_the_picker_asks_at_the_pools_own_service() -> None:
    name, _ = pool()
    service = own_service(name)
    assert example("DestinationRule")["spec"]["host"].startswith(f"{service}.default.svc")
    (processor,) = example("EnvoyExtensionPolicy")["spec"]["extProc"]
    assert processor["backendRefs"] == [{"name": service, "port": PORT}]


def test_the_envoy_asks_the_picker_and_sends_where_the_header_says() -> None:
    (envoy,) = [one["static_resources"] for one in EXAMPLES if "static_resources" in one]
    clusters = {one["name"]: one for one in envoy["clusters"]}
    (manager,) = [one["typed_config"] for one in envoy["listeners"][0]["filter_chains"][0]["filters"]]
    processor, last = (one["typed_config"] for one in manager["http_filters"])
    assert last["@type"].endswith("http.router.v3.Router")
    asked = processor["grpc_service"]["envoy_grpc"]
    (endpoint,) = clusters[asked["cluster_name"]]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    assert (address["address"], address["port_value"]) == (asked["authority"], PORT)
    assert asked["authority"] == f"{own_service(pool()[0])}.default.svc"
    assert {processor["processing_mode"][f"{way}_body_mode"] for way in ("request", "response")} == {"FULL_DUPLEX_STREAMED"}
    (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
    sent = clusters[route["route"]["cluster"]]
    (policy,) = sent["load_balancing_policy"]["policies"]
    assert policy["typed_extension_config"]["typed_config"]["override_host_sources"] == [{"header": "x-gateway-destination-endpoint"}]
    (instances,) = sent["load_assignment"]["endpoints"][0]["lb_endpoints"]
    name, spec = pool()
    address = instances["endpoint"]["address"]["socket_address"]
    assert (address["address"], address["port_value"]) == (f"{name}.default.svc", spec.engine.port), "the pool's headless Service"
