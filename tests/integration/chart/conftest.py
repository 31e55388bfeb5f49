"""A Kubernetes API for all tests of the chart, and Helm as somebody who may not create what it renders."""

from collections.abc import Iterator

import pytest

from fairlead_sandbox.kubernetes_api.serving.server import RunningServer
from fairlead_testing.running.chart import Render, cluster_for_charts, renderer
from fairlead_testing.worlds.pod_phases import KubernetesClient


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with cluster_for_charts(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(scope="session")
def client(server: RunningServer) -> KubernetesClient:
    """The administrator's."""
    return KubernetesClient.of(str(server.kubeconfig))


@pytest.fixture(scope="session")
def render(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Render:
    return renderer(server, tmp_path_factory.mktemp("helm"), "rendering")
