"""An engine gets exactly the headers of the request, whatever was sent before it on its connection."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.requests import KnownHeaders, forwarded_headers
from fairlead_testing.examples import examples

NAMES = (b"content-length", b"authorization", b"connection", b"x-request-id", b"x-session-id", b"x-own", b"accept")
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((b"1", b"2", b"x-own"))), max_size=4)


@examples(300)
@given(st.lists(st.tuples(HEADERS, st.sampled_from((b"x-session-id", b"x-own")), st.booleans()), max_size=6))
def test_of_each_request_the_same_is_forwarded_as_on_a_new_connection(
    requests: list[tuple[list[tuple[bytes, bytes]], bytes, bool]],
) -> None:
    known = KnownHeaders()
    for headers, session_header, credentials in requests:
        expected = forwarded_headers(headers, session_header, credentials=credentials)
        assert known.forwarded(headers, session_header, credentials=credentials) == expected


def test_headers_that_differ_by_the_length_of_the_body_are_read_once() -> None:
    known, agent = KnownHeaders(), (b"user-agent", b"x")
    first = known.forwarded([agent, (b"content-length", b"7"), (b"accept", b"*/*")], b"x-session-id", credentials=False)
    assert known.forwarded([agent, (b"content-length", b"8"), (b"accept", b"*/*")], b"x-session-id", credentials=False) is first


@pytest.mark.parametrize("name", [b"x-own", b"cookie", b"x-fairlead-own"])
def test_long_headers_are_not_kept_for_the_next_request_whether_an_engine_gets_them_or_not(name: bytes) -> None:
    known, long = KnownHeaders(), [(b"accept", b"*/*"), (name, b"x" * 9000)]
    first = known.forwarded(long, b"x-session-id", credentials=False)
    assert known.forwarded(long, b"x-session-id", credentials=False) is not first
    assert max(len(pickle.dumps(getattr(known, field))) for field in KnownHeaders.__slots__) < 1000


def test_nothing_of_long_headers_reaches_a_request_without_any() -> None:
    known = KnownHeaders()
    known.forwarded([(b"x-own", b"x" * 9000)], b"", credentials=False)
    assert known.forwarded([(b"content-length", b"7")], b"", credentials=False) == (b"", None)
