"""The environment of a container."""

import base64

import pytest

from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.refusals import PodRefused
from processkube.kubelet.stored_objects import Reference, StoredObjects
from processkube.kubelet.variables import container_variables, referred

MANIFEST = {
    "metadata": {"name": "chat-babc12", "namespace": "default", "uid": "u1", "labels": {"acme.dev/pool": "chat"}},
    "spec": {},
}
POD = PodSpec(uid="u1", namespace="default", name="chat-babc12", node="sandbox", containers=())


TOKENS = Reference(kind="Secret", name="tokens")
LIMITS = Reference(kind="ConfigMap", name="limits")
STORED = StoredObjects({TOKENS: {"data": {"operator": base64.b64encode(b"secret").decode()}}, LIMITS: {"data": {"LIMIT": "5"}}})


def variables(*env: dict[str, object], env_from: tuple[dict[str, object], ...] = ()) -> dict[str, str]:
    container = ContainerSpec(name="engine", image="", env=env, env_from=env_from)
    return container_variables(container, POD, MANIFEST, STORED, pod_ip="127.40.0.7", node="sandbox")


def key(name: str, kind: str = "secretKeyRef", of: str = "tokens", **more: object) -> dict[str, object]:
    return {"valueFrom": {kind: {"name": of, "key": name, **more}}}


def field(path: str) -> dict[str, object]:
    return {"fieldRef": {"fieldPath": path}}


def test_variables_come_from_fields_and_from_those_before_them() -> None:
    made = variables(
        {"name": "POD_NAME", "valueFrom": field("metadata.name")},
        {"name": "POD_IP", "valueFrom": field("status.podIP")},
        {"name": "POOL", "valueFrom": field("metadata.labels['acme.dev/pool']")},
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


def test_variables_come_from_keys_and_whole_objects() -> None:
    made = variables(
        {"name": "TOKEN", **key("operator")},
        {"name": "URL", "value": "u:$(TOKEN)"},
        {"name": "ABSENT", **key("admin", optional=True)},
        env_from=({"prefix": "P_", "configMapRef": {"name": "limits"}}, {"secretRef": {"name": "none", "optional": True}}),
    )
    assert made == {"HOSTNAME": "chat-babc12", "P_LIMIT": "5", "TOKEN": "secret", "URL": "u:secret"}


def test_a_container_tells_which_objects_its_variables_need() -> None:
    container = ContainerSpec(
        name="engine", image="", env=({"name": "T", **key("operator")},), env_from=({"configMapRef": {"name": "limits"}},)
    )
    assert set(referred(container)) == {TOKENS, LIMITS}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (key("admin"), "env X: couldn't find key admin in Secret tokens"),
        (key("a", of="none"), 'secret "none" not found'),
        (key("a", "configMapKeyRef", "none"), 'configmap "none" not found'),
        ({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, "env X: .* no value from resourceFieldRef"),
    ],
)
def test_a_variable_without_a_source_is_refused_by_name(entry: dict[str, object], message: str) -> None:
    with pytest.raises(PodRefused, match=message):
        variables({"name": "X", **entry})


def test_a_field_no_pod_has_is_refused_by_name() -> None:
    with pytest.raises(PodRefused, match=r"env X: fieldPath 'status\.mood'"):
        variables({"name": "X", "valueFrom": field("status.mood")})
