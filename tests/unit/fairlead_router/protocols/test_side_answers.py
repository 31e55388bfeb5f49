"""Answers to requests that bypass the scheduler: which are errors, in whatever pieces they arrive."""

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.side_answers import LONGEST_ERROR, SideAnswer, reported_error
from fairlead_router.protocols.spoken_events import Failure

ERROR = {"message": "KV load failed", "type": "InternalServerError", "param": None, "code": 500}
JSON, EVENTS = b"application/json", b"text/event-stream; charset=utf-8"


@pytest.mark.parametrize(
    ("document", "failure"),
    [
        ({"object": "error", "message": "boom", "code": 500}, Failure("boom", 500)),
        ({"object": "error", "error": {"message": "boom"}}, Failure("boom")),
        ({"error": ERROR}, Failure("KV load failed", 500)),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}, "request_id": "r"}, Failure("boom", 503)),
        ({"error": None, "prompt": ""}, None),
        ({"text": "", "error": None}, None),
        ({"count": 2, "tokens": [1, 2], "token_strs": ["error", "x"]}, None),
        ({"prompt": '{"error": "boom"}'}, None),
        ({"id": "resp_1", "status": "failed", "error": {"message": "boom"}, "output": []}, None),
        ({"tokens": [], "error": "x" * 100_000}, None),
    ],
)
def test_a_document_of_any_form_may_be_an_error(document: dict[str, Any], failure: Failure | None) -> None:
    assert reported_error(orjson.dumps(document)) == failure


def heard(body: bytes, cuts: list[int], kind: bytes = JSON) -> SideAnswer:
    answer = SideAnswer(kind)
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        answer.feed(body[start:end])
    return answer


CUTS = st.lists(st.integers(0, 1000), max_size=8)


@given(st.sampled_from([{"error": ERROR}, {"object": "error", "message": "boom"}, {"tokens": [1], "count": 1}]), st.integers(0, 3), CUTS)
def test_an_error_is_found_however_it_is_cut_and_whatever_stands_before_it(document: dict[str, Any], blanks: int, cuts: list[int]) -> None:
    answer = heard(b" \n" * blanks + orjson.dumps(document), cuts)
    assert answer.failure == reported_error(orjson.dumps(document))
    assert answer.is_open, "it may go on until its end has come"


@given(CUTS)
def test_what_cannot_be_an_error_is_not_waited_for(cuts: list[int]) -> None:
    assert not heard(b"plain text", [*cuts, 1]).is_open
    assert not heard(b"[" + b"1," * 100, cuts).is_open
    assert not heard(b'{"tokens": [' + b"1," * LONGEST_ERROR, cuts).is_open
    assert not heard(b" " * (LONGEST_ERROR + 1), cuts).is_open, "nor is what never begins"
    assert not heard(b": ping\n\n" * LONGEST_ERROR, cuts, EVENTS).is_open


@given(st.booleans(), CUTS)
def test_an_error_among_events_is_found_however_it_is_cut(begun: bool, cuts: list[int]) -> None:
    before = 'data: {"choices": [{"delta": {"content": "x"}}]}\n\n' if begun else ": ping\n\n"
    assert heard(before.encode(), cuts, EVENTS).is_open is not begun
    answer = heard(f"{before}data: {json.dumps({'error': ERROR})}\n\ndata: [DONE]\n\n".encode(), cuts, EVENTS)
    assert (answer.is_open, answer.failure) == (False, Failure("KV load failed", 500))


def test_events_of_a_form_of_their_own_are_an_answer() -> None:
    answer = heard(b'data: {"type": "transcript.text.delta", "delta": "x"}\n\ndata: {"type": "transcript.text.done"}\n\n', [], EVENTS)
    assert (answer.is_open, answer.failure) == (False, None)
