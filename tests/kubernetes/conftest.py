"""Kubernetes' own programs, for tests that need its controllers; skipped where they are not: docs/development.md."""

from collections.abc import Iterator

import pytest

from fairlead_testing.running.postgres import fresh_database, shared_server
from fairlead_testing.running.real_kubernetes import RealKubernetes, binaries, running_real_kubernetes


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    with running_real_kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture
def database_url() -> Iterator[str]:
    binaries()
    with shared_server() as server, fresh_database(server) as url:
        yield url
