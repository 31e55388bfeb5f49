"""`$(NAME)` is expanded as Kubernetes does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubelet.expansion import expand


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--host=$(POD_IP)", "--host=127.40.0.1"),
        ("$(POD_IP)$(POD_IP)", "127.40.0.1127.40.0.1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(POD_IP)", "$(POD_IP)"),
        ("$$$(POD_IP)", "$127.40.0.1"),
        ("cost: 5$", "cost: 5$"),
        ("$(", "$("),
        ("$POD_IP", "$POD_IP"),
    ],
)
def test_references_are_replaced_unknown_ones_kept_and_escapes_honoured(text: str, expanded: str) -> None:
    assert expand(text, {"POD_IP": "127.40.0.1"}) == expanded


@given(st.text(alphabet="ab$() ", max_size=30))
def test_a_text_without_a_known_name_changes_only_by_its_escapes(text: str) -> None:
    assert expand(text, {}).replace("$", "") == text.replace("$", "")
