"""Token counts of an answer are equal whether they stand in one document or in the events of a stream."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.usages import Figures, read_usage
from fairlead_testing.examples import examples

NAMES = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens", "reasoning")
COUNTS: st.SearchStrategy[Any] = st.sampled_from((0, 1, 7, -1, 10**9, 10**9 + 1, True, None, "3", 2.5))
DETAILS = st.sampled_from((None, {}, {"cached_tokens": 3}, {"cached_tokens": None}, {"cached_tokens": -1}, "none"))


@examples(500)
@given(st.dictionaries(st.sampled_from(NAMES), COUNTS), st.dictionaries(st.just("prompt_tokens_details"), DETAILS))
def test_a_whole_answer_and_a_stream_are_counted_alike(counts: dict[str, Any], details: dict[str, Any]) -> None:
    usage, figures = {**counts, **details}, Figures()
    figures.take(usage)
    read = read_usage(usage)
    assert figures.usage() == read if read is not None else figures.usage() == Figures().usage()
