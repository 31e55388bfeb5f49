"""One Kubernetes API for the module, one operator process per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_testing.fakes.system_api import running_fake_system_api
from fairlead_testing.running.chart import RIGHTS, applied_rights, rights_of
from fairlead_testing.running.helm import helm_is_installed
from fairlead_testing.running.kubernetes_api import service_account_kubeconfig
from fairlead_testing.running.operator_process import (
    STAYS_SECONDS,
    OperatorProcess,
    Stage,
    eventually,
    running_kubernetes_api,
    skip_where_kubelets_run,
)
from fairlead_testing.running.recording_proxy import RecordingProxy, recording_proxy
from fairlead_testing.worlds.pod_phases import running_pod_phases
from processkube.testing.clients import KubernetesClient


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as path:
        skip_where_kubelets_run(KubernetesClient.of(path))
        yield path


@pytest.fixture(scope="session")
def operators_kubeconfig(kubeconfig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the operator's own kubeconfig, which has the chart's service account and its rights, and no others.

    It is the administrator's on machines where Helm's library, which renders the rights, cannot be installed.
    """
    if not helm_is_installed():
        yield kubeconfig
        return
    folder = tmp_path_factory.mktemp("rights")
    with applied_rights(KubernetesClient.of(kubeconfig), rights_of("operator", folder)):
        yield str(service_account_kubeconfig(kubeconfig, "default", f"{RIGHTS}-fairlead-operator", folder))


@pytest.fixture
def stage(kubeconfig: str, operators_kubeconfig: str, tmp_path: Path) -> Iterator[Stage]:
    client = KubernetesClient.of(kubeconfig)
    with running_fake_system_api() as api, running_pod_phases(client) as phases:
        operator = OperatorProcess(kubeconfig=operators_kubeconfig, api_url=api.url, log=tmp_path / "operator.log")
        operator.start()
        stage = Stage(client=client, api=api, phases=phases, operator=operator)
        try:
            yield stage
        finally:
            api.up, api.state.pretence.acknowledges, phases.starts, phases.ends = True, True, True, True
            api.state.pretence.in_flight.clear()
            for name in stage.made:
                if stage.pool(name) is not None:
                    stage.delete(name)
            if operator.process is not None and operator.process.poll() is None:
                eventually(lambda: not any(stage.pool(name) for name in stage.made), "the pools are gone", pause=STAYS_SECONDS)
                eventually(lambda: not any(stage.pods(name) for name in stage.made), "the pods are collected", pause=STAYS_SECONDS)
            operator.kill()
            print((tmp_path / "operator.log").read_text(encoding="utf-8"))


@pytest.fixture
def proxied(kubeconfig: str, tmp_path: Path) -> Iterator[tuple[Stage, RecordingProxy]]:
    """Yield a stage whose operator reaches the cluster through a proxy; neither is started yet."""
    client = KubernetesClient.of(kubeconfig)
    with running_fake_system_api() as api, running_pod_phases(client) as phases, recording_proxy(client, tmp_path) as proxy:
        operator = OperatorProcess(kubeconfig=str(proxy.kubeconfig), api_url=api.url, log=tmp_path / "operator.log")
        stage = Stage(client=client, api=api, phases=phases, operator=operator)
        yield stage, proxy
        operator.kill()
        for name in stage.made:
            if stage.pool(name) is not None:
                stage.client.merge(
                    f"/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/{name}", {"metadata": {"finalizers": None}}
                )
                stage.delete(name)
        print((tmp_path / "operator.log").read_text(encoding="utf-8"))
