"""Text that people type into forms is read as numbers."""

import pytest

from fairlead_web.text.typed_text import whole_number


@pytest.mark.parametrize("text", ["", "-1", "1.5", "²", "١", "9" * 5000])
def test_what_is_no_whole_number_of_use_is_none(text: str) -> None:
    assert whole_number(text) is None
    assert whole_number("007") == 7
