"""JSON from any source is read equally on every Python: its depth is checked here, whatever decoders allow."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.json_documents import DEEPEST, decode_json, nests_deeper

ANYTHING = msgspec.json.Decoder()
STRINGS = st.text(st.sampled_from('[]{}"\\,: aé'), max_size=12)
DOCUMENTS = st.recursive(
    st.none() | st.integers(-9, 9) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=30,
)


def depth(document: Any) -> int:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def nested(levels: int, kind: str, value: str = "1") -> bytes:
    before, after = {"list": ("[", "]"), "object": ('{"a":', "}"), "both": ('[{"]}":', "}]")}[kind]
    return (before * levels + value + after * levels).encode()


@given(DOCUMENTS, st.integers(0, 6), st.booleans())
def test_the_depth_seen_in_the_bytes_is_that_of_the_document(document: Any, deepest: int, ascii_only: bool) -> None:
    content = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert nests_deeper(content, deepest) == (depth(document) > deepest)


@given(st.integers(0, 3 * DEEPEST), st.sampled_from(["list", "object"]), st.sampled_from(["1", '"[[[["', '"\\\\"', "[", "}"]))
def test_what_begins_too_deeply_is_refused_also_where_it_is_no_json(levels: int, kind: str, value: str) -> None:
    content = nested(levels, kind, value)
    if levels > DEEPEST:
        with pytest.raises(msgspec.DecodeError, match=f"^it is nested deeper than {DEEPEST} levels$"):
            decode_json(content, ANYTHING)
        with pytest.raises(msgspec.DecodeError, match="nested deeper"):
            decode_json(nested(levels, kind, "")[:-levels], ANYTHING)
    elif value.startswith(("1", '"')):
        assert decode_json(content, ANYTHING) == json.loads(content)


@pytest.mark.parametrize("levels", [500, 5_000, 200_000])
def test_a_depth_that_some_interpreters_allow_is_refused_by_all(levels: int) -> None:
    for kind in ("list", "object", "both"):
        assert nests_deeper(nested(levels, kind))
    assert not nests_deeper(b"[" + b"[[],{}]," * 100_000 + b"[]]"), "many brackets are not deep"


def test_a_document_beyond_a_chunk_keeps_its_level_and_its_quotes() -> None:
    for size in range(65_520, 65_545):
        assert not nests_deeper(b'["' + b"x" * size + b"[" * 100 + b'", 1]')
        assert nests_deeper(b'["' + b"x" * size + b'", ' + b"[" * 100)


def test_text_that_is_no_utf_8_is_told_without_the_interpreters_words() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"^it is not UTF-8: byte \d+ cannot be read$"):
        decode_json(b'{"a": "\xff"}', ANYTHING)
