"""One server for the whole suite, on its own thread, so that blocking clients can talk to it."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from processkube.kubernetes_api.serving.server import RunningServer
from processkube.testing.serving import serving
from processkube.testing.waiting import PATIENCE_SECONDS

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.acme.dev"},
    "spec": {
        "group": "acme.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
                    {"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What the widget should be.",
                                "required": ["image"],
                                "x-kubernetes-validations": [
                                    {"rule": "self.replicas <= self.maxReplicas", "message": "replicas must not exceed maxReplicas"},
                                    {"rule": "self.image == oldSelf.image", "message": "image is immutable"},
                                ],
                                "properties": {
                                    "image": {"type": "string", "minLength": 1, "pattern": "^[a-z0-9:./-]+$"},
                                    "replicas": {"type": "integer", "minimum": 0, "default": 1},
                                    "maxReplicas": {"type": "integer", "maximum": 100, "default": 4},
                                    "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                                    "every": {"type": "string", "format": "duration"},
                                    "parts": {
                                        "type": "array",
                                        "maxItems": 4,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "size": {
                                                    "type": "integer",
                                                    "default": 1,
                                                    "x-kubernetes-validations": [
                                                        {"rule": "self >= oldSelf", "message": "size must not shrink"}
                                                    ],
                                                },
                                            },
                                        },
                                    },
                                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("kubernetes"), service_accounts=("acme/operator", "acme/api")) as found:
        yield found


def client_of(server: RunningServer) -> httpx.Client:
    """Return an HTTP client with the admin's token."""
    context = ssl.create_default_context(cafile=str(server.certificate_authority))
    headers = {"Authorization": f"Bearer {server.token()}"}
    return httpx.Client(base_url=server.url, verify=context, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)


@pytest.fixture(scope="session")
def api(server: RunningServer) -> Iterator[httpx.Client]:
    """Yield the admin's HTTP client."""
    with client_of(server) as client:
        assert client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=WIDGETS).status_code == 201
        yield client


@pytest.fixture(scope="module")
def impatient_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield the admin's client of a separate server, which gives up a silent node after half a second."""
    with serving(tmp_path_factory.mktemp("kubernetes"), node_grace_seconds=0.5) as server, client_of(server) as client:
        yield client


@pytest.fixture
def namespace(api: httpx.Client) -> str:
    """Return the name of a namespace that only the test uses."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    assert api.post("/api/v1/namespaces", json={"metadata": {"name": name}}).status_code == 201
    return name


@pytest.fixture
def core(namespace: str) -> str:
    """Return the path of the namespace's core resources."""
    return f"/api/v1/namespaces/{namespace}"


@pytest.fixture
def widgets(namespace: str) -> str:
    """Return the path of the namespace's Widgets."""
    return f"/apis/acme.dev/v1/namespaces/{namespace}/widgets"


@pytest.fixture
def log_folder(server: RunningServer) -> Path:
    folder = server.kubeconfig.parent / "logs"
    folder.mkdir(exist_ok=True)
    return folder
