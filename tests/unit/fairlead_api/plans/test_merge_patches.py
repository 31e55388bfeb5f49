"""Merge patches, and the patches that undo them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead_api.plans.merge_patches import holds, inverse, merged, replacing

NAMES = st.sampled_from("abc")
LEAVES = st.integers(0, 3) | st.just("x") | st.just([1])
DOCUMENTS = st.dictionaries(
    NAMES, LEAVES | st.dictionaries(NAMES, LEAVES | st.dictionaries(NAMES, LEAVES, max_size=2), max_size=2), max_size=3
)
PARTS = LEAVES | st.none()
PATCHES = st.dictionaries(NAMES, PARTS | st.dictionaries(NAMES, PARTS | st.dictionaries(NAMES, PARTS, max_size=2), max_size=2), max_size=3)


@given(DOCUMENTS, PATCHES)
def test_the_inverse_takes_a_patch_back(document: dict[str, Any], patch: dict[str, Any]) -> None:
    assert merged(merged(document, patch), inverse(document, patch)) == document


@given(DOCUMENTS, PATCHES)
def test_a_patched_document_holds_the_patch(document: dict[str, Any], patch: dict[str, Any]) -> None:
    assert holds(merged(document, patch), patch)


@given(DOCUMENTS, DOCUMENTS)
def test_replacing_leaves_nothing_else(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert set(merged(before, replacing(before, after))) == set(after)


def test_a_document_without_the_value_does_not_hold_the_patch() -> None:
    assert not holds({"slo": {"ttft": "5s"}}, {"slo": {"ttft": "3s"}})
    assert not holds({}, {"slo": {"ttft": "3s"}})
    assert holds({"slo": {"ttft": "3s", "tpot": "1s"}}, {"slo": {"ttft": "3s", "percentile": None}})
