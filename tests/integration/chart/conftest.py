"""A Kubernetes API for all tests of the chart, and Helm as somebody who may not create what it renders.

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
    """The administrator's."""
    return KubernetesClient.of(str(kubeconfig))


@pytest.fixture(scope="module")
def bare(client: KubernetesClient) -> Iterator[None]:
    """Each file finds the cluster without our definitions, and leaves those that the files of other tests rely on."""
    with without_our_definitions(client):
        yield


@pytest.fixture(scope="module")
def render(bare: None, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Render]:
    with renderer(kubeconfig, tmp_path_factory.mktemp("helm"), "rendering") as render:
        yield render
