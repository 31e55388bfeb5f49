"""The manifests of pods and other objects that the operator creates."""

from typing import Any

import pytest

from fairlead.instances import InstanceState, Role, instance_name
from fairlead.pools import parse_spec
from fairlead.reconciling.actions import CreationReason
from fairlead_operator.manifests import disruption_budget, pod, service
from fairlead_operator.observing.pods import read_pod
from fairlead_operator.pod_patches import state_annotations
from fairlead_operator.pod_templates import spec_hash
from fairlead_operator.pool_identity import PoolIdentity

IDENTITY = PoolIdentity(namespace="ns", name="chat", uid="u1")
NOW = "2026-01-01T00:00:00Z"


def simulated(**changes: Any) -> Any:
    return parse_spec({"model": "m", **changes})


def with_template(engine: str = "vllm", **container: Any) -> Any:
    template = {
        "metadata": {"labels": {"team": "a", "llm-d.ai/role": "forged"}, "annotations": {"note": "x"}},
        "spec": {
            "nodeSelector": {"gpu": "h100"},
            "containers": [{"name": "sidecar", "image": "s"}, {"name": "engine", "image": "vllm:1", **container}],
        },
    }
    return parse_spec({"model": "m", "engine": {"type": engine}, "roles": [{"name": "both", "template": template}]})


def made(spec: Any) -> dict[str, Any]:
    return pod(IDENTITY, spec, role=Role.BOTH, ordinal=7, image="fairlead/engine:9", reason=CreationReason.POOL_CREATED, now=NOW)


def test_a_pod_belongs_to_its_pool_and_says_what_it_is() -> None:
    metadata = made(simulated())["metadata"]
    assert metadata["name"] == instance_name("chat", "u1", Role.BOTH, 7)
    assert metadata["annotations"]["fairlead.dev/ordinal"] == "7"
    assert metadata["labels"] | {} == {
        "fairlead.dev/pool": "chat",
        "fairlead.dev/instance": metadata["name"],
        "llm-d.ai/role": "both",
        "app.kubernetes.io/managed-by": "fairlead",
    }
    assert metadata["ownerReferences"][0]["uid"] == "u1"
    assert metadata["ownerReferences"][0]["controller"] is True
    assert metadata["annotations"]["fairlead.dev/state"] == "Pending"
    assert metadata["annotations"]["fairlead.dev/state-reason"] == "PoolCreated"
    assert metadata["annotations"]["fairlead.dev/spec-hash"] == spec_hash(simulated(), Role.BOTH)


def test_a_simulated_engine_is_told_everything_by_arguments() -> None:
    spec = simulated(
        engine={"port": 9000, "prefillTokensPerSecond": 500, "simulated": {"decodeStep": "30ms", "startup": "2s", "timeScale": 4}}
    )
    [container] = made(spec)["spec"]["containers"]
    arguments = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    assert container["image"] == "fairlead/engine:9"
    assert container["command"] == ["fairlead-engine"]
    assert arguments == {
        "--model": "m",
        "--host": "$(POD_IP)",
        "--port": "9000",
        "--prefill-tokens-per-second": "500",
        "--decode-step-ms": "30",
        "--kv-cache-tokens": "1198372",
        "--block-size": "16",
        "--max-running": "256",
        "--max-waiting": "1024",
        "--time-scale": "4",
        "--bytes-per-token": "4",
        "--startup-seconds": "2",
    }
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 9000}


def test_a_simulated_engine_meets_the_restricted_standard_and_that_restarts_none_made_before() -> None:
    body = made(simulated())["spec"]
    assert body["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert body["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec_hash(simulated(), Role.BOTH) == "5710194dc1a9", "the same as before: another would replace every simulated instance"
    assert "securityContext" not in made(with_template())["spec"], "a person's template is a person's business"


@pytest.mark.parametrize(("engine", "period", "timeout"), [("vllm", 1, 2), ("sglang", 2, 10)])
def test_a_readiness_probe_gives_sglang_time_to_make_a_token(engine: str, period: int, timeout: int) -> None:
    probe = made(with_template(engine))["spec"]["containers"][1]["readinessProbe"]
    assert probe["httpGet"] == {"path": "/health", "port": 8000}
    assert (probe["periodSeconds"], probe["timeoutSeconds"]) == (period, timeout)


def test_a_persons_template_is_kept_and_only_completed() -> None:
    probe = {"httpGet": {"path": "/ready", "port": 1}}
    body = made(with_template(readinessProbe=probe, env=[{"name": "POD_IP", "value": "mine"}]))
    sidecar, engine = body["spec"]["containers"]
    assert sidecar == {"name": "sidecar", "image": "s"}
    assert engine["readinessProbe"] == probe
    assert [item["name"] for item in engine["env"]] == ["POD_IP", "POD_NAME"]
    assert engine["env"][0]["value"] == "mine"
    assert engine["ports"][0]["containerPort"] == 8000
    assert body["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert body["metadata"]["labels"]["team"] == "a"
    assert body["metadata"]["labels"]["llm-d.ai/role"] == "both"
    assert body["metadata"]["annotations"]["note"] == "x"


@pytest.mark.parametrize("on_the_node", [True, False])
@pytest.mark.parametrize("name", [None, "api", "http"])
def test_a_port_of_the_node_is_listed_once_whatever_its_name(name: str | None, on_the_node: bool) -> None:
    """A real API server refuses a pod on the node's network if it lists a port twice."""
    port = {"containerPort": 8000, **({"name": name} if name is not None else {})}
    template = {"spec": {"hostNetwork": on_the_node, "containers": [{"name": "engine", "image": "vllm:1", "ports": [port]}]}}
    spec = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "template": template}]})
    ports = made(spec)["spec"]["containers"][0]["ports"]
    names = {one.get("name") for one in ports}
    assert len(ports) == (2 if name == "api" and not on_the_node else 1)
    assert names == {name or "http"} | ({"http"} if not on_the_node else set())


def test_nulls_in_a_persons_template_are_completed_like_what_is_not_there() -> None:
    assert made(with_template(ports=None, env=None, readinessProbe=None))["spec"] == made(with_template())["spec"]


def test_pods_of_one_model_and_image_pair_and_a_template_may_say_otherwise() -> None:
    def revision(spec: Any) -> str:
        document = made(spec)
        document["metadata"]["uid"] = "u"
        return read_pod(document).report(8000).revision

    assert revision(simulated()) == "m fairlead/engine:9"
    assert revision(with_template()) == "m vllm:1"
    assert revision(with_template(image="vllm:2")) == "m vllm:2"
    own = {
        "metadata": {"annotations": {"fairlead.dev/kv-revision": "both"}},
        "spec": {"containers": [{"name": "engine", "image": "vllm:2"}]},
    }
    assert revision(parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "template": own}]})) == "both"
    bare = made(simulated())
    del bare["metadata"]["annotations"]["fairlead.dev/kv-revision"]
    assert read_pod(bare).report(8000).revision == ""


def test_making_a_pod_does_not_change_the_spec() -> None:
    spec = with_template()
    before = repr(spec)
    made(spec)
    assert repr(spec) == before


@pytest.mark.parametrize(
    "change",
    [{"engine": {"port": 9000}}, {"engine": {"kvCacheTokens": 5}}, {"engine": {"simulated": {"startup": "2s"}}}, {"model": "other"}],
)
def test_the_hash_changes_with_what_a_pod_depends_on(change: dict[str, Any]) -> None:
    assert spec_hash(simulated(**change), Role.BOTH) != spec_hash(simulated(), Role.BOTH)


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 5},
        {"routing": {"policy": "ear"}},
        {"slo": {"ttft": "1s"}},
        {"drain": {"timeout": "1s"}},
        {"earlyRejection": {"mode": "Load"}},
        {"engine": {"simulated": {}}},
        {"roles": [{"name": "both", "maxReplicas": 9}]},
    ],
)
def test_the_hash_stays_with_everything_else(change: dict[str, Any]) -> None:
    assert spec_hash(simulated(**change), Role.BOTH) == spec_hash(simulated(), Role.BOTH)


def test_a_role_that_has_no_instances_needs_no_template() -> None:
    empty = parse_spec({"model": "m", "engine": {"type": "vllm"}, "replicas": 0, "roles": [{"name": "both", "maxReplicas": 0}]})
    assert spec_hash(empty, Role.BOTH) != spec_hash(with_template(), Role.BOTH)


def test_service_and_budget_select_the_pools_pods() -> None:
    assert service(IDENTITY, simulated(), "http")["spec"]["selector"] == {"fairlead.dev/pool": "chat"}
    budget = disruption_budget(IDENTITY, Role.DECODE, 4)
    assert budget["metadata"]["name"] == "chat-decode"
    assert budget["spec"]["minAvailable"] == 3
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "an instance that is not ready holds up no drain of its node"
    assert budget["spec"]["selector"]["matchLabels"] == {"fairlead.dev/pool": "chat", "llm-d.ai/role": "decode"}
    assert disruption_budget(IDENTITY, Role.BOTH, 0)["spec"]["minAvailable"] == 0
    assert disruption_budget(IDENTITY, Role.BOTH, 4, leaving=2)["spec"]["minAvailable"] == 5
    assert disruption_budget(IDENTITY, Role.BOTH, 0, leaving=2)["spec"]["minAvailable"] == 1
    assert service(IDENTITY, simulated(), "http")["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_only_draining_leaves_the_drain_mark() -> None:
    assert "fairlead.dev/draining-since" in state_annotations(InstanceState.DRAINING, NOW, "ScaledDown")
    assert "fairlead.dev/draining-since" not in state_annotations(InstanceState.LOST, NOW, "NotReady")


def test_a_simulated_engine_has_no_token_room_on_its_node_and_may_pull_its_image() -> None:
    spec = parse_spec({"model": "m", "replicas": 1})
    body = pod(IDENTITY, spec, role=Role.BOTH, ordinal=1, image="i", reason="Added", now="2026-01-01T00:00:00Z", pull_secrets=("pull",))
    assert body["spec"]["automountServiceAccountToken"] is False
    assert body["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert body["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "20m", "memory": "128Mi"}}


def test_a_template_may_refer_to_the_operators_variables_and_others_keep_their_hash() -> None:
    """Kubernetes expands only references to earlier variables, and hashes of running instances must not change."""
    own = [{"name": "VLLM_HOST_IP", "value": "$(POD_IP)"}, {"name": "HF_HOME", "value": "/models"}]
    names = [item["name"] for item in made(with_template(env=own))["spec"]["containers"][1]["env"]]
    assert names == ["POD_IP", "VLLM_HOST_IP", "HF_HOME", "POD_NAME"]
    names = [item["name"] for item in made(with_template(env=own[1:]))["spec"]["containers"][1]["env"]]
    assert names == ["HF_HOME", "POD_NAME", "POD_IP"]
