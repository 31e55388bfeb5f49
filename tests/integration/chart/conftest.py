"""A Kubernetes API for all tests of the chart, and Helm as a user without the rights to create the chart's objects.

The API is the sandbox's, or the cluster that the environment names.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_testing.running.chart import Render, cluster_for_charts, renderer, without_our_definitions
from processkube.testing.clients import KubernetesClient


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with cluster_for_charts(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(scope="session")
def client(kubeconfig: Path) -> KubernetesClient:
    """Return the administrator's client."""
    return KubernetesClient.of(str(kubeconfig))


@pytest.fixture(scope="module")
def bare(client: KubernetesClient) -> Iterator[None]:
    """Let each file find the cluster without Fairlead's definitions, and restore those that other files need."""
    with without_our_definitions(client):
        yield


@pytest.fixture(scope="module")
def render(bare: None, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Render]:
    with renderer(kubeconfig, tmp_path_factory.mktemp("helm"), "rendering") as render:
        yield render
