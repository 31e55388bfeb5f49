"""The faults for which a pod is refused."""

from __future__ import annotations

from typing import Any

import pytest

from processkube.kubernetes_api.writing.pods import default_pod, pod_faults


def faults(*containers: list[dict[str, Any]], init: tuple[list[dict[str, Any]], ...] = (), **spec: Any) -> list[tuple[str, str]]:
    def made(name: str, ports: list[dict[str, Any]]) -> dict[str, Any]:
        return {"name": name, "image": "i:1", "ports": ports}

    spec["containers"] = [made(f"c{place}", ports) for place, ports in enumerate(containers)]
    spec["initContainers"] = [made(f"i{place}", ports) for place, ports in enumerate(init)]
    pod = {"metadata": {"name": "p"}, "spec": spec}
    default_pod(pod)
    return [(one.field, one.message) for one in pod_faults(pod, None)]


@pytest.mark.parametrize("further", [{"name": "http"}, {"name": "metrics"}, {"protocol": "TCP"}])
def test_a_port_of_the_node_is_used_only_once(further: dict[str, Any]) -> None:
    second = {"containerPort": 8000, **further}
    found = ("spec.containers[0].ports[1].hostPort", 'Duplicate value: "TCP//8000"')
    assert found in faults([{"name": "http", "containerPort": 8000}, second], hostNetwork=True)
    apart = ("spec.containers[1].ports[0].hostPort", 'Duplicate value: "TCP//8000"')
    assert faults([{"containerPort": 8000}], [second], hostNetwork=True) == [apart]
    assert faults([{"containerPort": 1, "hostPort": 8000}], [{**second, "hostPort": 8000}]) == [apart]


def test_uses_of_other_protocols_addresses_and_of_no_port_of_the_node_do_not_meet() -> None:
    tcp, udp = {"containerPort": 53, "hostPort": 53}, {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}
    assert faults([tcp, udp, {**tcp, "hostIP": "10.0.0.1"}]) == []
    assert faults([{"containerPort": 8000}, {"containerPort": 8000}], [{"containerPort": 8000}]) == []


def test_init_containers_run_one_by_one_and_may_use_the_same_port() -> None:
    use = [{"containerPort": 80, "hostPort": 80}]
    assert faults(use, init=(use, use)) == []
    assert faults([], init=(use + use,)) == [("spec.initContainers[0].ports[1].hostPort", 'Duplicate value: "TCP//80"')]


def test_a_container_gives_a_name_to_one_port_only() -> None:
    named = [{"name": "http", "containerPort": 80}, {"name": "http", "containerPort": 81}]
    assert faults(named) == [("spec.containers[0].ports[1].name", 'Duplicate value: "http"')]
    assert faults(named[:1], named[1:]) == []
