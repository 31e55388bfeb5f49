import pytest

from fairlead_simulator.engine_server.failures import Failure, FailureKind, parse_failure
from fairlead_simulator.engine_server.request_errors import RequestInvalid


def test_failures_are_read_from_the_header() -> None:
    assert parse_failure(b"hang") == Failure(kind=FailureKind.HANG)
    assert parse_failure(b" slow:2.5 ") == Failure(kind=FailureKind.SLOW, factor=2.5)


@pytest.mark.parametrize("value", [b"", b"explode", b"slow", b"slow:", b"slow:x", b"slow:0", b"slow:-1", b"slow:nan", b"hang:2", b"\xff"])
def test_an_unknown_failure_is_refused_naming_the_known_ones(value: bytes) -> None:
    with pytest.raises(RequestInvalid, match="use refuse, error-500, hang, die-mid-stream or slow:<factor>"):
        parse_failure(value)
