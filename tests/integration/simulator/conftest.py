from collections.abc import Iterator

import pytest

from fairlead_testing.running.engine import StartEngine, engine_starter


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    """Yield a function that starts engine servers on free ports; by default they serve `m` and are ready at once."""
    with engine_starter() as start:
        yield start
