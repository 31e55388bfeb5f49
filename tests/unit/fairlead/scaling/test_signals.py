"""The lengths of answers, estimated from those that ended and from the tokens so far of those that did not."""

import pytest

from fairlead.scaling.signals import mean_output_tokens


@pytest.mark.parametrize(
    ("generated", "expected"),
    [(1000, 100), (1500, 150), (9000, 200), (500, 50), (0, 100)],
    ids=["constant work", "longer answers have begun", "most are still running", "long answers of before ended", "nobody tells"],
)
def test_the_mean_output_of_ten_finished_requests_of_100_tokens(generated: int, expected: float) -> None:
    assert mean_output_tokens(10, 1000, generated) == expected


def test_nothing_is_known_before_a_request_has_finished() -> None:
    assert mean_output_tokens(0, 0, 5000) == 0
