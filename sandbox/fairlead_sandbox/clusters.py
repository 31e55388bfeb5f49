"""Clients of a Kubernetes API for the sandbox's own steps; every failure becomes a SandboxError."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fairlead_sandbox.errors import SandboxError
from processkube.errors import ProcesskubeError
from processkube.kubeconfig import read_kubeconfig
from processkube.kubernetes_client import KubernetesClient

OWN_ANSWER_SECONDS = 180.0
"""The longest wait for one answer of the sandbox's own Kubernetes API, which runs, but slowly on a busy machine."""
GIVEN_ANSWER_SECONDS = 10.0
"""The longest wait for one answer of a given cluster, which may be out of reach."""


@asynccontextmanager
async def client_of(kubeconfig: Path, *, answer_seconds: float = OWN_ANSWER_SECONDS) -> AsyncIterator[KubernetesClient]:
    """Yield a client of the cluster that waits up to `answer_seconds` for each answer. Raises SandboxError for an
    invalid file, and for errors of the cluster that the block does not catch.
    """
    with _as_sandbox_errors():
        async with KubernetesClient(read_kubeconfig(kubeconfig), timeout_seconds=answer_seconds) as client:
            yield client


def server_of(kubeconfig: Path) -> str:
    """Return the URL of the cluster's API. Raises SandboxError for a file that cannot be used."""
    with _as_sandbox_errors():
        return read_kubeconfig(kubeconfig).server


@contextmanager
def _as_sandbox_errors() -> Iterator[None]:
    try:
        yield
    except ProcesskubeError as problem:
        raise SandboxError(str(problem)) from None
