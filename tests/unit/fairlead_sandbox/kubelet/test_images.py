"""Which command line a container becomes, and what is refused."""

import pytest

from fairlead_sandbox.kubelet.images import command_line, container_variables
from fairlead_sandbox.kubelet.pod_specs import ContainerSpec, PodRefused, PodSpec

MANIFEST = {
    "metadata": {"name": "chat-babc12", "namespace": "default", "uid": "u1", "labels": {"fairlead.dev/pool": "chat"}},
    "spec": {},
}
POD = PodSpec(uid="u1", namespace="default", name="chat-babc12", node="sandbox", containers=())


def variables(*env: dict[str, object]) -> dict[str, str]:
    return container_variables(ContainerSpec(name="engine", image="", env=env), POD, MANIFEST, pod_ip="127.40.0.7", node="sandbox")


def field(path: str) -> dict[str, object]:
    return {"fieldRef": {"fieldPath": path}}


def test_the_engine_image_becomes_the_installed_engine_on_the_pods_address() -> None:
    container = ContainerSpec(name="engine", image="fairlead/engine:0.1.0", command=("fairlead-engine",), args=("--model", "$(MODEL)"))
    assert command_line(container, {"MODEL": "m"}, python="py", pod_ip="127.40.0.7") == (
        *("py", "-P", "-m", "fairlead_simulator.engine_server"),
        *("--model", "m", "--host", "127.40.0.7"),
    )


@pytest.mark.parametrize("argument", [("--host", "127.0.0.1"), ("--host=127.0.0.1",)])
def test_a_host_given_by_the_template_is_not_overridden(argument: tuple[str, ...]) -> None:
    container = ContainerSpec(name="engine", image="fairlead/engine", args=argument)
    assert command_line(container, {}, python="py", pod_ip="127.40.0.7")[4:] == argument


def test_another_image_is_refused_as_a_failed_pull_with_a_way_out() -> None:
    with pytest.raises(PodRefused, match=r"'vllm/vllm-openai:v1'.*runs only fairlead/engine.*use engine\.type simulated") as refusal:
        command_line(ContainerSpec(name="engine", image="vllm/vllm-openai:v1"), {}, python="py", pod_ip="")
    assert refusal.value.reason == "ErrImagePull"


def test_a_command_the_image_does_not_have_is_refused() -> None:
    with pytest.raises(PodRefused, match="command 'bash' is not in image fairlead/engine"):
        command_line(ContainerSpec(name="engine", image="fairlead/engine", command=("bash",)), {}, python="py", pod_ip="")


def test_variables_come_from_fields_and_from_those_before_them() -> None:
    made = variables(
        {"name": "POD_NAME", "valueFrom": field("metadata.name")},
        {"name": "POD_IP", "valueFrom": field("status.podIP")},
        {"name": "POOL", "valueFrom": field("metadata.labels['fairlead.dev/pool']")},
        {"name": "URL", "value": "http://$(POD_IP):8000/$(LATER)"},
        {"name": "LATER", "value": "x"},
        {"name": "EMPTY"},
    )
    assert made == {
        "HOSTNAME": "chat-babc12",
        "POD_NAME": "chat-babc12",
        "POD_IP": "127.40.0.7",
        "POOL": "chat",
        "URL": "http://127.40.0.7:8000/$(LATER)",
        "LATER": "x",
        "EMPTY": "",
    }


def test_a_variable_from_a_secret_is_refused_by_name() -> None:
    with pytest.raises(PodRefused, match=r"env KEY: .* fieldRef only, not secretKeyRef"):
        variables({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})


def test_a_field_no_pod_has_is_refused_by_name() -> None:
    with pytest.raises(PodRefused, match=r"env X: fieldPath 'status\.mood'"):
        variables({"name": "X", "valueFrom": field("status.mood")})
