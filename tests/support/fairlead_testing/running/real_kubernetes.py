"""Kubernetes itself on this machine: etcd, kube-apiserver and kube-controller-manager, without a node.

`python -m fairlead_testing.running.real_kubernetes COMMAND…` starts a cluster, runs a command with the cluster's
kubeconfig in `FAIRLEAD_TEST_KUBECONFIG` and `PROCESSKUBE_TEST_KUBECONFIG`, and ends the cluster.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fairlead_testing.running.authorities import Authority, private_text
from fairlead_testing.running.operator_process import KUBECONFIG_VARIABLE, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

BINARIES_VARIABLE = "FAIRLEAD_TEST_KUBE_BINARIES"
"""The environment variable with the folder of the three programs; docs/development.md says how to build them."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
FRONT_PROXY = "front-proxy-client"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealKubernetes:
    """A running cluster without nodes. `address` is this machine's address, for processes that stand in for pods."""

    kubeconfig: Path
    address: str
    folder: Path

    @property
    def client(self) -> KubernetesClient:
        return KubernetesClient.of(str(self.kubeconfig))


def binaries() -> Path:
    """Return the folder of the programs; skips the test if the environment names none."""
    given = os.environ.get(BINARIES_VARIABLE)
    if not given:
        pytest.skip("needs programs of Kubernetes: make test-kubernetes BINARIES=<folder>, docs/development.md")
    missing = [name for name in PROGRAMS if not os.access(Path(given) / name, os.X_OK)]
    assert not missing, f"{BINARIES_VARIABLE}={given}: put {', '.join(missing)} there"
    return Path(given)


@contextmanager
def running_real_kubernetes(folder: Path) -> Iterator[RealKubernetes]:
    """Start the three programs, wait until all of them answer, and end them after the block."""
    programs, port = binaries(), free_port()
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    keys = _Keys(folder, Authority(folder / "ca", "kubernetes"), Authority(folder / "proxy", "front-proxy"))
    server = f"https://127.0.0.1:{port}"
    admin = keys.kubeconfig(server, "admin", "system:masters")
    manager = keys.kubeconfig(server, "system:kube-controller-manager", "")
    with ExitStack() as stack:
        stack.enter_context(_process(folder, [str(programs / "etcd"), *_store_flags(folder / "etcd", store, peers)]))
        stack.enter_context(_process(folder, [str(programs / "kube-apiserver"), *_server_flags(keys, store, port)]))
        client = KubernetesClient.of(str(admin))
        eventually(lambda: _is_ready(client), "the API server is ready")
        stack.enter_context(_process(folder, [str(programs / "kube-controller-manager"), *_manager_flags(keys, manager)]))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(lambda: client.session.get(client.server + account, timeout=PATIENCE_SECONDS).ok, "the controllers work")
        yield RealKubernetes(kubeconfig=admin, address=address_of_this_machine(), folder=folder)


def address_of_this_machine() -> str:
    """Return an address of this machine other than loopback, which endpoints may not have; skips the test if there is
    none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        found: str = probe.getsockname()[0]
        return found


def _is_ready(client: KubernetesClient) -> bool:
    try:
        return client.session.get(f"{client.server}/readyz", timeout=PATIENCE_SECONDS).ok
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Keys:
    folder: Path
    authority: Authority
    proxy: Authority

    def kubeconfig(self, server: str, user: str, group: str) -> Path:
        pem = str(self.authority.signed(user, group))
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": {"server": server, "certificate-authority": str(self.authority.written())}}],
            "users": [{"name": "real", "user": {"client-certificate": pem, "client-key": pem}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }
        path = self.folder / f"kubeconfig-{user.replace(':', '-')}"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def accounts(self) -> tuple[Path, Path]:
        """Return the files with the private and public key for tokens of service accounts."""
        private, public = self.folder / "accounts.key", self.folder / "accounts.pub"
        if not private.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            private.write_bytes(private_text(key))
            public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        return private, public


def _store_flags(folder: Path, clients: str, peers: str) -> list[str]:
    return [
        f"--data-dir={folder}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]


def _server_flags(keys: _Keys, store: str, port: int) -> list[str]:
    private, public = keys.accounts()
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    serving, asking = keys.authority.signed("kube-apiserver", "", ("127.0.0.1",), names), keys.proxy.signed(FRONT_PROXY)
    return [
        f"--etcd-servers={store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving}",
        f"--tls-private-key-file={serving}",
        f"--client-ca-file={keys.authority.written()}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.231.0.0/24",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        f"--requestheader-client-ca-file={keys.proxy.written()}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={asking}",
        f"--proxy-client-key-file={asking}",
        "--enable-aggregator-routing=true",
    ]


def _manager_flags(keys: _Keys, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={keys.authority.written()}",
        f"--service-account-private-key-file={keys.accounts()[0]}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--horizontal-pod-autoscaler-downscale-stabilization=1s",
    ]


@contextmanager
def _process(folder: Path, command: Sequence[str]) -> Iterator[None]:
    name = Path(command[0]).name
    with (folder / f"{name}.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder) as process:
        try:
            yield
        finally:
            ended = process.poll()
            process.kill()
            process.wait(timeout=PATIENCE_SECONDS)
    assert ended is None, f"{name} ended with {ended}:\n{(folder / f'{name}.log').read_text(errors='replace')[-2000:]}"


def main() -> int:
    """Run a command beside a cluster and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="fairlead-kubernetes-") as folder, running_real_kubernetes(Path(folder)) as cluster:
        variables = dict.fromkeys((KUBECONFIG_VARIABLE, "PROCESSKUBE_TEST_KUBECONFIG"), str(cluster.kubeconfig))
        return subprocess.run(sys.argv[1:], env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
