"""What people type into forms, read as numbers and documents."""

import pytest
import yaml

from fairlead_web.typed_text import read_yaml, whole_number


@pytest.mark.parametrize("text", ["", "-1", "1.5", "²", "١", "9" * 5000])
def test_what_is_no_whole_number_of_use_is_none(text: str) -> None:
    assert whole_number(text) is None
    assert whole_number("007") == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("start: 2026-02-30", "day is out of range for month"),
        ("&a {b: *a}", "it holds itself, or is nested too deeply"),
        ("a: " + "[" * 3000, "it holds itself, or is nested too deeply"),
        (
            "\n".join([f"a0: &a0 {list(range(50))}", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 50)}]" for n in range(1, 9))]),
            "it has more than 100,000 values",
        ),
        ("a: [", "expected the node content, but found '<stream end>'"),
    ],
)
def test_yaml_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as refused:
        read_yaml(text)
    assert refused.value.problem == why


def test_dates_of_yaml_are_text_as_json_has_them() -> None:
    assert read_yaml("{day: 2026-02-03, at: 2026-02-03T10:00:00Z}") == {"day": "2026-02-03", "at": "2026-02-03T10:00:00Z"}
