"""One sandbox for all acceptance tests of this folder; each test has its own pools."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_testing.running.sandbox import RunningSandbox, running_sandbox


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    directory: Path = tmp_path_factory.mktemp("sandbox")
    with running_sandbox(directory) as running:
        yield running
