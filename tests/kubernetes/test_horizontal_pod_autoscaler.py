"""Kubernetes' own HorizontalPodAutoscaler scales a Deployment by Fairlead's wanted number, through its own API server.

The API is a process with the rights, the certificate and the APIService of the chart; an EndpointSlice says where it
is, as no kubelet runs here. `FAIRLEAD_TEST_KUBE_RECORDING=<file>` keeps what the API server asked: that is how
`tests/contract/kubernetes/*.json` was made.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_testing.builders.scaling import a_scaling_decision
from fairlead_testing.running.api import BOOTSTRAP, SECRETS, SPEC, a_state, an_instance
from fairlead_testing.running.chart import cluster_for_charts, place_of, renderer
from fairlead_testing.running.helm import Document
from fairlead_testing.running.kubernetes_api import service_account_kubeconfig
from fairlead_testing.running.operator_process import ROOT, eventually
from fairlead_testing.running.real_kubernetes import RealKubernetes
from fairlead_testing.running.strict_system_api import taken
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.chart_values import BUNDLED, merged
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

HOME, TEAM = "fairlead-system", "team-a"
POOL = PoolKey(namespace=TEAM, name="chat")
VALUES = merged(BUNDLED, {"autoscalers": {"externalMetrics": {"enabled": True}}})
SERVICE = "test-fairlead-autoscalers"
CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
METRICS = "/apis/external.metrics.k8s.io/v1beta1"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{TEAM}/deployments/vllm"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{TEAM}/horizontalpodautoscalers"


@dataclass(slots=True)
class World:
    """A cluster with Fairlead's API in it, and a Deployment to scale."""

    client: KubernetesClient
    url: str
    recording: Path
    version: int = 0

    async def want(self, instances: int) -> None:
        """Have the pool's operator advise so many instances."""
        self.version += 1
        decision = a_scaling_decision(f"d{self.version}", time.time(), mode="Advise", replicas=instances)
        spec: Document = {**SPEC, "roles": [{"name": "both", "minReplicas": 1}], "scaling": {"mode": "Advise"}}
        state = a_state(
            an_instance("a"), version=self.version, generation=self.version, spec=spec, desired={"both": 2}, scaling_decisions=(decision,)
        )
        async with SystemApi(self.url, SECRETS["system-operator"], timeout_seconds=PATIENCE_SECONDS) as api:
            taken(await api.put_state(POOL, state))

    def replicas(self) -> int:
        found: int = self.client.call("GET", DEPLOYMENT)["spec"]["replicas"]
        return found

    def autoscaler(self) -> Document:
        found: Document = self.client.call("GET", f"{AUTOSCALERS}/vllm").get("status", {})
        return found

    def asked(self) -> list[Document]:
        """What was asked at the port so far, with its answers."""
        return [json.loads(line) for line in self.recording.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def world(kubernetes: RealKubernetes, database_url: str, tmp_path: Path) -> Iterator[World]:
    client, recording = kubernetes.client, tmp_path / "asked.jsonl"
    for namespace in (HOME, TEAM):
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    documents = of_the_chart(tmp_path)
    for document in documents:
        client.call("POST", place_of(client, document), document)
    port = free_port()
    client.call("POST", f"/apis/discovery.k8s.io/v1/namespaces/{HOME}/endpointslices", endpoints(kubernetes.address, port))
    account = service_account_kubeconfig(kubernetes.kubeconfig, HOME, "test-fairlead-api", tmp_path)
    settings = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_EXTERNAL_METRICS_PORT": str(port), "KUBECONFIG": str(account)}
    with api_process(recording, kubernetes.address, settings | certificate(documents, tmp_path)) as url:
        yield World(client, url, recording)
    if keep := os.environ.get("FAIRLEAD_TEST_KUBE_RECORDING"):
        shutil.copy(recording, keep)


def of_the_chart(folder: Path) -> list[Document]:
    """What the chart makes for external metrics, with the API's account and its rights."""
    with cluster_for_charts(folder / "rendering") as kubeconfig, renderer(kubeconfig, folder, HOME) as render:
        every = render(VALUES).every()
    rights = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    return [
        one
        for one in every
        if one["kind"] == "APIService"
        or one["metadata"]["name"].startswith(SERVICE)
        or (one["kind"] in rights and one["metadata"]["name"].startswith("test-fairlead-api"))
    ]


def certificate(documents: list[Document], folder: Path) -> dict[str, str]:
    """The settings that name the certificate, whose files are mounted from the chart's Secret."""
    [secret] = (one for one in documents if one["kind"] == "Secret")
    names = {"FAIRLEAD_AUTOSCALERS_TLS_CERT_FILE": "tls.crt", "FAIRLEAD_AUTOSCALERS_TLS_KEY_FILE": "tls.key"}
    for name in names.values():
        (folder / name).write_bytes(base64.b64decode(secret["data"][name]))
    return {variable: str(folder / name) for variable, name in names.items()}


def endpoints(address: str, port: int) -> Document:
    """Where the Service's pod is."""
    return {
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "external", "port": port, "protocol": "TCP"}],
    }


@contextmanager
def api_process(recording: Path, host: str, settings: dict[str, str]) -> Iterator[str]:
    """The API's URL while it runs."""
    recording.touch()
    tokens = ",".join(":".join(token) for token in BOOTSTRAP)
    environment = {**os.environ, "FAIRLEAD_BOOTSTRAP_TOKENS": tokens, "PYTHONPATH": str(ROOT / "tests" / "support"), **settings}
    port = free_port()
    command = [sys.executable, "-m", "fairlead_testing.running.recorded_metrics", str(recording), "--host", host, "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        eventually(lambda: is_ready(f"http://{host}:{port}/readyz"), "the control API is ready")
        yield f"http://{host}:{port}"
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def is_ready(url: str) -> bool:
    session = requests.Session()
    session.trust_env = False
    try:
        return session.get(url, timeout=PATIENCE_SECONDS).ok
    except OSError:
        return False


def make_workload(client: KubernetesClient) -> None:
    """The Deployment of the example, and the example."""
    labels = {"app": "vllm"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}
    deployment = {"metadata": {"name": "vllm"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}
    client.call("POST", DEPLOYMENT.removesuffix("/vllm"), deployment)
    example = (ROOT / "examples/autoscalers/horizontal-pod-autoscaler.yaml").read_text(encoding="utf-8")
    client.call("POST", AUTOSCALERS, yaml.safe_load(example))


def conditions(status: Document) -> dict[str, Any]:
    return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", ())}


@pytest.mark.timeout(1800)
async def test_a_deployment_is_scaled_up_and_down_by_the_wanted_number(world: World) -> None:
    service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
    eventually(
        lambda: conditions(world.client.call("GET", service)["status"]).get("Available") == ("True", "Passed"),
        "the APIService is available",
    )
    await world.want(3)
    make_workload(world.client)
    for wanted in (3, 7, 2):
        await world.want(wanted)
        eventually(lambda wanted=wanted: world.replicas() == wanted, f"the Deployment has {wanted} replicas")  # type: ignore[misc]
    status = eventually(lambda: settled(world.autoscaler(), 2), "the autoscaler is at rest")
    assert conditions(status)["AbleToScale"][0] == "True"
    assert conditions(status)["ScalingActive"] == ("True", "ValidMetricFound")
    [metric] = status["currentMetrics"]
    assert metric["external"]["current"] == {"averageValue": "1"}
    asked = [one for one in world.asked() if one["path"] == f"{METRICS}/namespaces/{TEAM}/fairlead_wanted_instances"]
    assert {(one["client"], header(one, "x-remote-user"), one["status"]) for one in asked} == {("front-proxy-client", CONTROLLER, 200)}
    assert {one["query"] for one in asked} == {"labelSelector=pool%3Dchat%2Crole%3Dboth"}


def settled(status: Document, replicas: int) -> Document | None:
    at_rest = status.get("currentReplicas") == status.get("desiredReplicas") == replicas
    return status if at_rest and status.get("currentMetrics") else None


def header(exchange: Document, name: str) -> str:
    return next((value for key, value in exchange["headers"] if key == name), "")


@pytest.mark.timeout(1800)
def test_who_may_not_list_the_metric_is_forbidden_by_the_clusters_own_rights(
    kubernetes: RealKubernetes, world: World, tmp_path: Path
) -> None:
    path = f"{METRICS}/namespaces/{TEAM}/fairlead_wanted_instances"
    world.client.call("POST", f"/api/v1/namespaces/{TEAM}/serviceaccounts", {"metadata": {"name": "reader"}})
    reader = KubernetesClient.of(str(service_account_kubeconfig(kubernetes.kubeconfig, TEAM, "reader", tmp_path)))
    eventually(lambda: reader.session.get(reader.server + path, timeout=PATIENCE_SECONDS).status_code == 403, "it is forbidden")
    rules = [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["fairlead_wanted_instances"], "verbs": ["list"]}]
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": TEAM}
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}"
    world.client.call("POST", f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    world.client.call("POST", f"{roles}/rolebindings", {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]})
    eventually(lambda: reader.session.get(reader.server + path, timeout=PATIENCE_SECONDS).ok, "it may read it")
