"""One sandbox for all acceptance tests of this folder; each test has its own pools."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_testing.running.sandbox import POOLS, RunningSandbox, running_sandbox, until


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    directory: Path = tmp_path_factory.mktemp("sandbox")
    with running_sandbox(directory) as running:
        before = pool_names(running)
        yield running
        if not running.has_own_kubernetes:  # a cluster outlives this, and pools end only while an operator runs
            for name in pool_names(running) - before:
                running.delete_pool(name)
            until(lambda: pool_names(running) <= before, "the pools of the tests are gone")


def pool_names(sandbox: RunningSandbox) -> set[str]:
    return {item["metadata"]["name"] for item in sandbox.kubernetes("GET", POOLS).json()["items"]}
