"""Each failure of a cluster is a `SandboxError`, which the command shows in one line."""

from pathlib import Path

import pytest

from fairlead_sandbox.clusters import client_of, server_of
from fairlead_sandbox.errors import SandboxError
from processkube.errors import ClusterProblem
from processkube.kubernetes_client import KubernetesClient


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="nowhere: cannot be read"):
        server_of(tmp_path / "nowhere")
    with pytest.raises(SandboxError, match="nowhere: cannot be read"):
        async with client_of(tmp_path / "nowhere"):
            pass


async def test_a_problem_can_be_caught_within_the_block_and_is_the_sandboxs_outside(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )

    async def ask(client: KubernetesClient) -> None:
        with pytest.raises(ClusterProblem):
            await client.request("GET", "/version")
        await client.request("GET", "/version")

    with pytest.raises(SandboxError, match="does not answer"):
        async with client_of(kubeconfig) as client:
            await ask(client)
