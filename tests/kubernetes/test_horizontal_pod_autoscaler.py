"""Kubernetes' own HorizontalPodAutoscaler scales a Deployment by Fairlead's wanted number, through its own API server.

The API is a process with the rights, the certificate and the APIService of the chart; an EndpointSlice says where it
is, as no kubelet runs here. `FAIRLEAD_TEST_KUBE_RECORDING=<file>` keeps what was asked, which is how
`tests/unit/fairlead_api/autoscalers/kubernetes-1.36.json` was made.
"""

import base64
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
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
from fairlead_testing.running.recorded_metrics import as_fixture, exchanges
from fairlead_testing.running.strict_system_api import taken
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.chart_values import BUNDLED, merged
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

HOME = "fairlead-system"
VALUES = merged(BUNDLED, {"autoscalers": {"externalMetrics": {"enabled": True}}})
SERVICE = "test-fairlead-autoscalers"
CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
KUBERNETES = {CONTROLLER, "system:kube-aggregator", "system:aggregator"}
GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
RECORDING = "FAIRLEAD_TEST_KUBE_RECORDING"
NEWEST = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
TEAMS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What the chart makes for external metrics in a cluster, without the API; `port` is where it is awaited."""

    kubernetes: RealKubernetes
    port: int
    settings: Mapping[str, str]
    recording: Path


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """A running control API, and where people and operators reach it."""

    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)


@dataclass(slots=True, kw_only=True)
class World:
    """A cluster with Fairlead's API in it, and a namespace `team` with a Deployment that an autoscaler scales."""

    client: KubernetesClient
    api: ApiProcess
    recording: Path
    team: str
    version: int = 0

    async def want(self, instances: int) -> None:
        """Have the pool's operator advise so many instances."""
        self.version += 1
        decision = a_scaling_decision(f"d{self.version}", time.time(), mode="Advise", replicas=instances)
        spec: Document = {**SPEC, "roles": [{"name": "both", "minReplicas": 1}], "scaling": {"mode": "Advise"}}
        state = a_state(
            an_instance("a"), version=self.version, generation=self.version, spec=spec, desired={"both": 2}, scaling_decisions=(decision,)
        )
        async with SystemApi(self.api.url, SECRETS["system-operator"], timeout_seconds=PATIENCE_SECONDS) as api:
            taken(await api.put_state(PoolKey(namespace=self.team, name="chat"), state))

    @property
    def metric(self) -> str:
        return f"/apis/{GROUP_VERSION}/namespaces/{self.team}/fairlead_wanted_instances"

    def make_workload(self) -> None:
        """The Deployment of the example, and the example."""
        labels = {"app": "vllm"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}
        deployment = {"metadata": {"name": "vllm"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}
        self.client.call("POST", f"/apis/apps/v1/namespaces/{self.team}/deployments", deployment)
        example = (ROOT / "examples/autoscalers/horizontal-pod-autoscaler.yaml").read_text(encoding="utf-8")
        self.client.call("POST", f"/apis/autoscaling/v2/namespaces/{self.team}/horizontalpodautoscalers", yaml.safe_load(example))

    def replicas(self) -> int:
        found: int = self.client.call("GET", f"/apis/apps/v1/namespaces/{self.team}/deployments/vllm")["spec"]["replicas"]
        return found

    def autoscaler(self) -> Document:
        """Its status."""
        found = self.client.call("GET", f"/apis/autoscaling/v2/namespaces/{self.team}/horizontalpodautoscalers/vllm")
        return found.get("status") or {}

    def until_it_is_scaled_to(self, replicas: int) -> None:
        eventually(lambda: self.replicas() == replicas, f"the Deployment has {replicas} replicas")


@pytest.fixture(scope="session")
def installed(kubernetes: RealKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    client, folder, port = kubernetes.client, tmp_path_factory.mktemp("installed"), free_port()
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    documents = of_the_chart(folder)
    for document in documents:
        client.call("POST", place_of(client, document), document)
    client.call("POST", f"/apis/discovery.k8s.io/v1/namespaces/{HOME}/endpointslices", endpoints(kubernetes.address, port))
    account = service_account_kubeconfig(kubernetes.kubeconfig, HOME, "test-fairlead-api", folder)
    settings = {"FAIRLEAD_EXTERNAL_METRICS_PORT": str(port), "KUBECONFIG": str(account), **certificate(documents, folder)}
    recording = folder / "asked.jsonl"
    yield Installed(kubernetes=kubernetes, port=port, settings=settings, recording=recording)
    if keep := os.environ.get(RECORDING):
        own = [one for one in exchanges(recording) if header(one, "x-remote-user") in KUBERNETES]
        Path(keep).write_text(as_fixture(own), encoding="utf-8")


@pytest.fixture
def world(installed: Installed, database_url: str) -> Iterator[World]:
    client, team = installed.kubernetes.client, f"team-{next(TEAMS)}"
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": team}})
    settings = {**installed.settings, "FAIRLEAD_DATABASE_URL": database_url}
    with api_process(installed.recording, installed.kubernetes.address, settings) as api:
        service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
        eventually(
            lambda: conditions(client.call("GET", service)["status"]).get("Available") == ("True", "Passed"), "the APIService is available"
        )
        yield World(client=client, api=api, recording=installed.recording, team=team)


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


def certificate(documents: list[Document], folder: Path) -> Mapping[str, str]:
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
def api_process(recording: Path, host: str, settings: Mapping[str, str]) -> Iterator[ApiProcess]:
    """The control API, which writes down what is asked at its port for external metrics."""
    recording.touch()
    tokens = ",".join(":".join(token) for token in BOOTSTRAP)
    environment = {**os.environ, "FAIRLEAD_BOOTSTRAP_TOKENS": tokens, "PYTHONPATH": str(ROOT / "tests" / "support"), **settings}
    port = free_port()
    command = [sys.executable, "-m", "fairlead_testing.running.recorded_metrics", str(recording), "--host", host, "--port", str(port)]
    running = ApiProcess(f"http://{host}:{port}", subprocess.Popen(command, env=environment))
    try:
        eventually(lambda: is_ready(f"{running.url}/readyz"), "the control API is ready")
        yield running
    finally:
        running.kill()


def is_ready(url: str) -> bool:
    session = requests.Session()
    session.trust_env = False
    try:
        return session.get(url, timeout=PATIENCE_SECONDS).ok
    except OSError:
        return False


def conditions(status: Document) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", ())}


@pytest.mark.timeout(1800)
async def test_a_deployment_is_scaled_up_and_down_by_the_wanted_number(world: World) -> None:
    await world.want(3)
    world.make_workload()
    for wanted in (3, 7, 2):
        await world.want(wanted)
        world.until_it_is_scaled_to(wanted)
    status = eventually(lambda: settled(world.autoscaler(), 2), "the autoscaler is at rest")
    assert conditions(status)["AbleToScale"][0] == "True"
    assert conditions(status)["ScalingActive"] == ("True", "ValidMetricFound")
    [metric] = status["currentMetrics"]
    assert metric["external"]["current"] == {"averageValue": "1"}
    asked = [one for one in exchanges(world.recording) if one["path"] == world.metric]
    assert {(one["client"], header(one, "x-remote-user"), one["status"]) for one in asked} == {("front-proxy-client", CONTROLLER, 200)}
    assert {one["query"] for one in asked} == {"labelSelector=pool%3Dchat%2Crole%3Dboth"}
    world.client.call("DELETE", f"/api/v1/namespaces/{world.team}")
    eventually(lambda: is_gone(world.client, f"/api/v1/namespaces/{world.team}"), "the namespace goes, as what is in it is known")


def settled(status: Document, replicas: int) -> Document | None:
    at_rest = status.get("currentReplicas") == status.get("desiredReplicas") == replicas
    return status if at_rest and status.get("currentMetrics") else None


def header(exchange: Mapping[str, Any], name: str) -> str:
    return next((value for key, value in exchange["headers"] if key == name), "")


def is_gone(client: KubernetesClient, path: str) -> bool:
    return client.session.get(client.server + path, timeout=PATIENCE_SECONDS).status_code == 404


@pytest.mark.timeout(1800)
async def test_while_the_api_is_away_a_deployment_stays_as_it_is_and_a_namespace_waits_to_go(world: World) -> None:
    await world.want(4)
    world.make_workload()
    await world.want(4)
    world.until_it_is_scaled_to(4)
    world.api.kill()
    failed = ("False", "FailedGetExternalMetric")
    eventually(lambda: conditions(world.autoscaler()).get("ScalingActive") == failed, "the autoscaler says that it has no metric")
    assert world.replicas() == 4
    eventually(lambda: freshness(shown(world.client, "/apis", NEWEST)) == "Stale", "the API server takes what there is for old")
    namespace = f"/api/v1/namespaces/{world.team}"
    world.client.call("DELETE", namespace)
    unknown = ("True", "DiscoveryFailed")
    eventually(
        lambda: conditions(world.client.call("GET", namespace)["status"]).get("NamespaceDeletionDiscoveryFailure") == unknown,
        "the namespace waits, as it is not known what is in it",
    )


@pytest.mark.timeout(1800)
def test_the_api_server_shows_what_there_is_and_describes_it(world: World) -> None:
    eventually(lambda: freshness(shown(world.client, "/apis", NEWEST)) == "Current", "it is discovered")
    assert discovered(shown(world.client, "/apis", NEWEST)) == ["fairlead_slo_headroom", "fairlead_wanted_instances"]
    path = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/fairlead_wanted_instances"
    eventually(lambda: path in shown(world.client, "/openapi/v2")["paths"], "they are described, in version 2")
    three = f"apis/{GROUP_VERSION}"
    eventually(lambda: three in shown(world.client, "/openapi/v3")["paths"], "and in version 3")
    assert path in shown(world.client, f"/openapi/v3/{three}")["paths"]


def shown(client: KubernetesClient, path: str, headers: Mapping[str, str] = {"Accept": "application/json"}) -> Document:
    answer = client.session.get(client.server + path, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.ok, answer.text
    found: Document = answer.json()
    return found


def version_of(groups: Document) -> Document:
    """Our version as the API server shows it; empty where it does not."""
    ours = [group for group in groups["items"] if group["metadata"]["name"] == GROUP_VERSION.split("/")[0]]
    found: Document = ours[0]["versions"][0] if ours else {}
    return found


def freshness(groups: Document) -> str | None:
    return version_of(groups).get("freshness")


def discovered(groups: Document) -> list[str]:
    """The metrics that the API server shows."""
    return sorted(one["resource"] for one in version_of(groups).get("resources", ()))


@pytest.mark.timeout(1800)
def test_who_may_not_list_the_metric_is_forbidden_by_the_clusters_own_rights(world: World, installed: Installed, tmp_path: Path) -> None:
    world.client.call("POST", f"/api/v1/namespaces/{world.team}/serviceaccounts", {"metadata": {"name": "reader"}})
    reader = KubernetesClient.of(str(service_account_kubeconfig(installed.kubernetes.kubeconfig, world.team, "reader", tmp_path)))
    url = reader.server + world.metric
    eventually(lambda: reader.session.get(url, timeout=PATIENCE_SECONDS).status_code == 403, "it is forbidden")
    rules = [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["fairlead_wanted_instances"], "verbs": ["list"]}]
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": world.team}
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.team}"
    world.client.call("POST", f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    world.client.call("POST", f"{roles}/rolebindings", {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]})
    eventually(lambda: reader.session.get(url, timeout=PATIENCE_SECONDS).ok, "it may read it")
