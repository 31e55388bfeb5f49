"""Which pods a Service leads to, and its names."""

from typing import Any

import pytest

from processkube.service_endpoints import Listener, backing_pods, listeners
from processkube.service_proxy.names import hosts_text

NETWORK = "127.100"


def a_service(name: str, *, address: str = "10.96.0.7", namespace: str = "ops", **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": "http", "protocol": "TCP"}]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": "api"}, "clusterIP": address, "type": "ClusterIP", "ports": ports, **spec},
    }


def a_pod(name: str, ip: str, *, ready: bool = True, namespace: str = "ops", ending: bool = False, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": {"app": "api", "more": "x"}}
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}], **spec},
        "status": {"phase": "Running", "podIP": ip, "conditions": conditions},
    }


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([a_pod("a", "1"), a_pod("b", "2")], ["a", "b"]),
        ([a_pod("a", "1"), a_pod("b", "2", ready=False)], ["a"]),
        ([a_pod("a", "1"), a_pod("b", "2", ending=True)], ["a"]),
        ([a_pod("a", "1", ready=False), a_pod("b", "2", ending=True)], ["b"]),
        ([a_pod("a", "1", namespace="other")], []),
        ([a_pod("a", "")], []),
    ],
)
def test_new_connections_go_to_ready_pods_and_to_ending_ones_only_when_there_is_no_other(
    pods: list[dict[str, Any]], expected: list[str]
) -> None:
    assert names(backing_pods(a_service("api"), pods)) == expected  # type: ignore[arg-type]  # read only


def test_a_service_that_publishes_what_is_not_ready_has_all_pods() -> None:
    pods = [a_pod("a", "1", ready=False), a_pod("b", "2", ending=True)]
    assert names(backing_pods(a_service("api", publishNotReadyAddresses=True), pods)) == ["a", "b"]  # type: ignore[arg-type]


def test_a_service_without_a_selector_has_no_pods() -> None:
    assert backing_pods(a_service("api", selector=None), [a_pod("a", "1")]) == []


def test_a_load_balancer_is_reached_at_the_machines_address_too() -> None:
    service = a_service(
        "api", type="LoadBalancer", ports=[{"port": 80, "targetPort": "http", "nodePort": 30000}, {"port": 9, "targetPort": 9}]
    )
    pods = [a_pod("a", "127.40.0.1"), a_pod("b", "127.40.0.2")]
    first = (("127.40.0.1", 8080), ("127.40.0.2", 8080))
    second = (("127.40.0.1", 9), ("127.40.0.2", 9))
    assert listeners(service, pods, "127.100.0.7", machine="127.0.0.1") == [
        Listener(address="127.100.0.7", port=80, targets=first),
        Listener(address="127.0.0.1", port=80, targets=first),
        Listener(address="127.0.0.1", port=30000, targets=first),
        Listener(address="127.100.0.7", port=9, targets=second),
        Listener(address="127.0.0.1", port=9, targets=second),
    ]


def test_pods_find_services_of_their_own_namespace_by_bare_names_and_others_by_longer_ones() -> None:
    services = [a_service("api"), a_service("web", address="10.96.1.2", namespace="other")]
    assert hosts_text("ops", services, [], NETWORK) == (
        "127.0.0.1 localhost\n"
        "127.100.0.7 api.ops.svc.cluster.local api.ops.svc api.ops api\n"
        "127.100.1.2 web.other.svc.cluster.local web.other.svc web.other\n"
    )


def test_a_headless_service_names_its_pods() -> None:
    service = a_service("routers", address="None", publishNotReadyAddresses=True)
    pods = [
        a_pod("r-1", "127.40.0.2", hostname="r-1", subdomain="routers"),
        a_pod("r-0", "127.40.0.1", hostname="r-0", subdomain="routers"),
    ]
    text = hosts_text("ops", [service], pods, NETWORK)
    assert text.splitlines()[1:] == [
        "127.40.0.1 routers.ops.svc.cluster.local routers.ops.svc routers.ops routers",
        "127.40.0.1 r-0.routers.ops.svc.cluster.local r-0.routers.ops.svc r-0.routers.ops r-0.routers",
        "127.40.0.2 routers.ops.svc.cluster.local routers.ops.svc routers.ops routers",
        "127.40.0.2 r-1.routers.ops.svc.cluster.local r-1.routers.ops.svc r-1.routers.ops r-1.routers",
    ]
