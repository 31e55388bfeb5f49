"""A blocking client of a Kubernetes API, for tests."""

import tempfile
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import requests
import yaml

from processkube.testing.waiting import PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class KubernetesClient:
    """A client of a Kubernetes API for plain HTTP requests. It reads a kubeconfig file with a token or a client
    certificate.
    """

    server: str
    session: requests.Session

    @staticmethod
    def of(kubeconfig: str) -> "KubernetesClient":
        document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        session = requests.Session()
        session.trust_env = False
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        session.verify = cluster.get("certificate-authority") or _written(cluster["certificate-authority-data"], kubeconfig, "ca.crt")
        if "token" in user:
            session.headers["Authorization"] = f"Bearer {user['token']}"
        else:
            certificate = user.get("client-certificate") or _written(user["client-certificate-data"], kubeconfig, "client.crt")
            session.cert = (certificate, user.get("client-key") or _written(user["client-key-data"], kubeconfig, "client.key"))
        return KubernetesClient(server=cluster["server"], session=session)

    def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> dict[str, Any]:
        """Send one request, and return the response. Raises AssertionError with the server's message if the request is
        refused.
        """
        response = self.session.request(method, self.server + path, json=body, headers={"Content-Type": content}, timeout=PATIENCE_SECONDS)
        assert response.ok, f"{method} {path}: {response.status_code} {response.text[:500]}"
        answer: dict[str, Any] = orjson.loads(response.content)
        return answer

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        """Send a JSON merge patch, and return the changed object."""
        return self.call("PATCH", path, body, content="application/merge-patch+json")


def _written(data: str, kubeconfig: str, name: str) -> str:
    path = Path(tempfile.mkdtemp(prefix="processkube-test-")) / f"{Path(kubeconfig).stem}.{name}"
    path.touch(mode=0o600)
    path.write_bytes(b64decode(data))
    return str(path)
