from collections.abc import Iterator

import pytest

from fairlead_testing.running.engine import StartEngine, engine_starter


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    """Starts engine servers on free ports; they serve `m` and are ready at once unless told otherwise."""
    with engine_starter() as start:
        yield start
