"""The command line that a container becomes, and the containers that are refused."""

from pathlib import PurePath

import pytest

from fairlead_sandbox.images import CATALOGUE
from processkube.kubelet.pod_specs import ContainerSpec
from processkube.kubelet.refusals import PodRefused


def test_the_engine_image_becomes_the_installed_engine_on_the_pods_address() -> None:
    container = ContainerSpec(name="engine", image="fairlead/engine:0.1.0", command=("fairlead-engine",), args=("--model", "$(MODEL)"))
    assert CATALOGUE.command_line(container, {"MODEL": "m"}, python="py", pod_ip="127.40.0.7") == (
        *("py", "-P", "-m", "fairlead_simulator.engine_server"),
        *("--model", "m", "--host", "127.40.0.7"),
    )


@pytest.mark.parametrize("argument", [("--host", "127.0.0.1"), ("--host=127.0.0.1",)])
def test_a_host_given_by_the_template_is_not_overridden(argument: tuple[str, ...]) -> None:
    container = ContainerSpec(name="engine", image="fairlead/engine", args=argument)
    assert CATALOGUE.command_line(container, {}, python="py", pod_ip="127.40.0.7")[4:] == argument


def test_another_image_is_refused_as_a_failed_pull_with_a_way_out() -> None:
    with pytest.raises(PodRefused, match=r"'vllm/vllm-openai:v1'.*runs only fairlead/engine, .*use engine\.type simulated") as refusal:
        CATALOGUE.command_line(ContainerSpec(name="engine", image="vllm/vllm-openai:v1"), {}, python="py", pod_ip="")
    assert refusal.value.reason == "ErrImagePull"


def test_a_command_the_image_does_not_have_is_refused() -> None:
    with pytest.raises(PodRefused, match="command 'bash' is not in image fairlead/engine"):
        CATALOGUE.command_line(ContainerSpec(name="engine", image="fairlead/engine", command=("bash",)), {}, python="py", pod_ip="")


@pytest.mark.parametrize("image", ["fairlead/router:0.1.0", "registry.example.com:5000/mirror/fairlead/router@sha256:ab"])
def test_a_process_of_the_chart_listens_on_its_pods_address_where_it_says_every_address(image: str) -> None:
    command = ("fairlead", "router", "--host", "0.0.0.0", "--port", "8000", "--admin-host=0.0.0.0")
    assert CATALOGUE.command_line(
        ContainerSpec(name="router", image=image, command=command), {}, python="/bin/py", pod_ip="127.40.0.7"
    ) == (
        *("/bin/py", "-P", "/bin/fairlead"),
        *("router", "--host", "127.40.0.7", "--port", "8000", "--admin-host=127.40.0.7"),
    )


def test_a_module_of_an_image_runs_with_its_python() -> None:
    container = ContainerSpec(name="migrations", image="fairlead/api:1", command=("python", "-m", "fairlead_api.migrating"))
    assert CATALOGUE.command_line(container, {}, python="py", pod_ip="127.40.0.7") == ("py", "-P", "-m", "fairlead_api.migrating")


def test_without_a_command_the_image_has_its_own() -> None:
    assert CATALOGUE.command_line(ContainerSpec(name="o", image="fairlead/operator"), {}, python="py", pod_ip="ip")[-1] == "operator"
    assert CATALOGUE.variables_of(ContainerSpec(name="o", image="fairlead/operator"), pod_ip="ip") == {
        "FAIRLEAD_OPERATOR_HEALTH_HOST": "ip"
    }


def test_a_probes_loopback_is_the_pods_address() -> None:
    container = ContainerSpec(name="postgres", image="postgres:18.1")
    line = CATALOGUE.command_within(container, ("pg_isready", "-U", "fairlead", "-h", "127.0.0.1"), python="py", pod_ip="127.40.0.7")
    assert (PurePath(line[0]).name, *line[1:]) == ("pg_isready", "-U", "fairlead", "-h", "127.40.0.7")


def test_another_repository_of_a_similar_name_is_another_image() -> None:
    with pytest.raises(PodRefused, match="no container runtime"):
        CATALOGUE.command_line(ContainerSpec(name="p", image="notpostgres:18"), {}, python="py", pod_ip="")
