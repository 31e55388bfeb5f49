"""Small fields are read from documents that are too large to hold."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.squeezing import KEPT_BYTES, Squeezed
from fairlead_testing.steps import LINE, work_of

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def _squeezed(document: bytes, cuts: list[int], array_depth: int) -> Any:
    squeezed = Squeezed(array_depth)
    places = sorted({0, len(document), *(cut % (len(document) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        squeezed.feed(document[start:end])
    return squeezed.document()


def _emptied(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return {name: _emptied(inner, depth) for name, inner in value.items()}
    if not isinstance(value, list):
        return value
    return [_emptied(inner, depth - 1) for inner in value] if depth else [0] * bool(value)


@given(st.dictionaries(st.text(max_size=8), _VALUES, max_size=5), st.lists(st.integers(0, 2000), max_size=10), st.integers(0, 2))
def test_all_but_the_inside_of_arrays_stays_however_it_is_cut(document: dict[str, Any], cuts: list[int], array_depth: int) -> None:
    assert _squeezed(orjson.dumps(document), cuts, array_depth) == _emptied(document, array_depth)


@given(st.text(min_size=600, max_size=3000), st.lists(st.integers(0, 9000), max_size=10))
def test_long_strings_become_a_placeholder(text: str, cuts: list[int]) -> None:
    document = {"before": 1, "text": text, "after": {"count": 2}}
    assert _squeezed(orjson.dumps(document), cuts, 0) == {**document, "text": "..."}


def test_a_document_of_too_many_small_fields_is_unknown_and_takes_no_more_than_the_bound() -> None:
    squeezed = Squeezed(0)
    squeezed.feed(orjson.dumps({str(number): number for number in range(100_000)}))
    assert squeezed.document() is None
    assert len(squeezed._kept) <= 3 * KEPT_BYTES


def test_what_is_left_out_is_read_by_the_piece_and_not_by_the_value() -> None:
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": [98, 99]}]}
    document = orjson.dumps({"choices": [{"logprobs": {"content": [token] * 1000}}]})
    squeezed = Squeezed(0)
    assert work_of(lambda: squeezed.feed(document)) < 60_000 * LINE
    assert squeezed.document() == {"choices": [0]}
