"""Each test has a namespace of its own, in this Kubernetes API or the cluster that the environment names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from processkube.testing.clients import KubernetesClient
from processkube.testing.serving import serving
from processkube.testing.workloads import WorkloadNamespace

KUBECONFIG_VARIABLE = "PROCESSKUBE_TEST_KUBECONFIG"
"""Environment variable with the kubeconfig of an API server that runs no node, as a reference for the sandbox's."""


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesClient]:
    if given := os.environ.get(KUBECONFIG_VARIABLE):
        yield KubernetesClient.of(given)
        return
    with serving(tmp_path_factory.mktemp("kubernetes")) as server:
        yield KubernetesClient.of(str(server.kubeconfig))


@pytest.fixture
def namespace(client: KubernetesClient) -> Iterator[WorkloadNamespace]:
    name = f"w-{uuid.uuid4().hex[:10]}"
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield WorkloadNamespace(client, name)
    client.call("DELETE", f"/api/v1/namespaces/{name}")
