"""The order of messages of a picked request, without gRPC."""

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.picking.exchange import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    LARGEST_PIECE,
    Abandoned,
    Action,
    Exchange,
    Finish,
    ResponseBegan,
    ResponseEnded,
    ResponsePiece,
    Say,
    Stage,
    TooLarge,
    Whole,
)
from fairlead_router.picking.messages import (
    AnswerAtOnce,
    BodyCame,
    HeadersCame,
    Incoming,
    PassBody,
    PassHeaders,
    PassTrailers,
    Side,
    TrailersCame,
)

REQUEST, RESPONSE = Side.REQUEST, Side.RESPONSE
HEADERS = [(b":path", b"/v1/completions")]
REFUSED = AnswerAtOnce(429, [(b"retry-after", b"2")], b"{}", "fairlead_full")


def picked(body: bytes = b"hello") -> Exchange:
    exchange = Exchange(1000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    exchange.hear(BodyCame(REQUEST, body, True))
    exchange.picked("10.0.0.1:8000", [], [], body)
    return exchange


def said(actions: Sequence[Action]) -> list[object]:
    return [action.message for action in actions if isinstance(action, Say)]


def test_headers_wait_for_the_body_and_both_go_on_when_a_destination_is_picked() -> None:
    exchange = Exchange(1000)
    assert exchange.hear(HeadersCame(REQUEST, HEADERS, False, ("10.0.0.1:8000",))) == ()
    assert exchange.hear(BodyCame(REQUEST, b"hel", False)) == ()
    assert exchange.hear(BodyCame(REQUEST, b"lo", True)) == (Whole(HEADERS, b"hello", ("10.0.0.1:8000",)),)
    assert said(exchange.picked("10.0.0.1:8000", [(b"a", b"b")], [b"cookie"], b"hello")) == [
        PassHeaders(REQUEST, [(b"a", b"b"), (b"content-length", b"5")], [b"cookie"], "10.0.0.1:8000"),
        PassBody(REQUEST, b"hello", True),
    ]


def test_a_request_without_a_body_is_picked_for_at_once_and_gets_none() -> None:
    exchange = Exchange(1000)
    assert exchange.hear(HeadersCame(REQUEST, HEADERS, True)) == (Whole(HEADERS, b"", None),)
    assert said(exchange.picked("10.0.0.1:8000", [], [], b"")) == [PassHeaders(REQUEST, [], [], "10.0.0.1:8000")]


def test_a_changed_body_goes_on_with_its_own_length() -> None:
    exchange = Exchange(1000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    exchange.hear(BodyCame(REQUEST, b"hello", True))
    headers, body = said(exchange.picked("10.0.0.1:8000", [], [], b"changed"))
    assert isinstance(headers, PassHeaders)
    assert (b"content-length", b"7") in headers.changed
    assert body == PassBody(REQUEST, b"changed", True)


def test_trailers_end_a_body_and_go_on_after_it() -> None:
    exchange = Exchange(1000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    exchange.hear(BodyCame(REQUEST, b"hello", False))
    assert exchange.hear(TrailersCame(REQUEST)) == (Whole(HEADERS, b"hello", None),)
    assert said(exchange.picked("10.0.0.1:8000", [], [], b"hello"))[1:] == [PassBody(REQUEST, b"hello", False), PassTrailers(REQUEST)]


def test_a_large_body_goes_on_in_pieces_that_every_proxy_takes() -> None:
    body = bytes(range(256)) * 600
    exchange = Exchange(len(body))
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    exchange.hear(BodyCame(REQUEST, body, True))
    pieces = [message for message in said(exchange.picked("e", [], [], body)) if isinstance(message, PassBody)]
    assert b"".join(piece.piece for piece in pieces) == body
    assert [piece.ended for piece in pieces] == [False, False, True]
    assert all(len(piece.piece) <= LARGEST_PIECE for piece in pieces)


def test_a_body_in_pieces_of_two_bytes_takes_hardly_more_than_its_size() -> None:
    exchange = Exchange(1_000_000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    tracemalloc.start()
    try:
        for number in range(100_000):
            exchange.hear(BodyCame(REQUEST, b"%02d" % (number % 100), False))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 200_000


def test_a_body_over_the_limit_is_told_as_soon_as_it_is_over() -> None:
    exchange = Exchange(4)
    exchange.hear(HeadersCame(REQUEST, HEADERS, False))
    assert exchange.hear(BodyCame(REQUEST, b"hello", False)) == (TooLarge(),)
    assert exchange.refused(REFUSED) == (Say(REFUSED), Finish())
    assert exchange.hear(BodyCame(REQUEST, b"more", True)) == ()


def test_a_refusal_answers_the_client_and_ends_the_stream() -> None:
    exchange = Exchange(1000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, True))
    assert exchange.refused(REFUSED) == (Say(REFUSED), Finish())
    assert exchange.picked("10.0.0.1:8000", [], [], b"") == ()
    assert exchange.half_closed() == ()


def test_a_response_goes_on_piece_by_piece() -> None:
    exchange = picked()
    assert exchange.hear(HeadersCame(RESPONSE, HEADERS, False, served="10.0.0.2:8000")) == (ResponseBegan(HEADERS, "10.0.0.2:8000"),)
    assert exchange.hear(BodyCame(RESPONSE, b"tok", False)) == (ResponsePiece(b"tok", last=False, ended=False),)
    assert exchange.passed(b"tok", ended=False) == [Say(PassBody(RESPONSE, b"tok", False))]
    assert exchange.hear(BodyCame(RESPONSE, b"", True)) == (ResponsePiece(b"", last=True, ended=True), ResponseEnded())
    assert exchange.passed(b"", ended=True) == [Say(PassBody(RESPONSE, b"", True))]
    assert exchange.passed(b"", ended=False) == (), "nothing of a piece is left that is kept from its client"
    assert exchange.half_closed() == (Finish(),)


def test_trailers_end_a_response() -> None:
    exchange = picked()
    exchange.hear(HeadersCame(RESPONSE, HEADERS, False))
    last = ResponsePiece(b"", last=True, ended=False)
    assert exchange.hear(TrailersCame(RESPONSE)) == (last, ResponseEnded(), Say(PassTrailers(RESPONSE)))


def test_a_response_without_a_body_ends_with_its_headers() -> None:
    assert picked().hear(HeadersCame(RESPONSE, HEADERS, True)) == (ResponseBegan(HEADERS, None), ResponseEnded())


@pytest.mark.parametrize("stage", ["before", "deciding", "answering"])
def test_a_stream_that_ends_early_is_abandoned_once(stage: str) -> None:
    exchange = Exchange(1000)
    if stage != "before":
        exchange.hear(HeadersCame(REQUEST, HEADERS, True))
    if stage == "answering":
        exchange.picked("e", [], [], b"")
        exchange.hear(HeadersCame(RESPONSE, HEADERS, False))
    assert exchange.gone() == (Abandoned(), Finish())
    assert exchange.gone() == ()


def test_a_proxy_that_gives_up_while_the_request_waits_may_answer_itself() -> None:
    exchange = Exchange(1000)
    exchange.hear(HeadersCame(REQUEST, HEADERS, True))
    assert exchange.hear(HeadersCame(RESPONSE, HEADERS, True)) == (ResponseBegan(HEADERS, None), ResponseEnded())
    assert exchange.picked("e", [], [], b"") == ()
    assert exchange.refused(REFUSED) == ()


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([BodyCame(REQUEST, b"", True)], "request_body before request_headers"),
        ([HeadersCame(REQUEST, HEADERS, False)] * 2, "request_headers must come once"),
        ([HeadersCame(REQUEST, HEADERS, True), BodyCame(REQUEST, b"", True)], "request_body after the end of the request"),
        ([HeadersCame(REQUEST, HEADERS, True), TrailersCame(REQUEST)], "request_trailers after the end of the request"),
        ([BodyCame(RESPONSE, b"", True)], "response_body before response_headers"),
        ([HeadersCame(RESPONSE, HEADERS, True), BodyCame(RESPONSE, b"", True)], "response_body after the end of the response"),
        ([HeadersCame(RESPONSE, HEADERS, True)] * 2, "response_headers must come once"),
        ([None], "without a request or response"),
    ],
)
def test_messages_out_of_order_end_the_stream_with_a_status_that_names_them(messages: list[Incoming | None], what: str) -> None:
    exchange = Exchange(1000)
    *before, last = messages
    for message in before:
        exchange.hear(message)
    (*_, finish) = exchange.hear(last)
    assert isinstance(finish, Finish)
    assert finish.status == INVALID_ARGUMENT
    assert what in finish.message


def test_a_proxy_in_another_mode_is_told_how_to_be_set() -> None:
    (_, finish) = Exchange(1000).hear(HeadersCame(REQUEST, HEADERS, False, other_modes="request_body_mode is BUFFERED"))
    assert isinstance(finish, Finish)
    assert finish.status == FAILED_PRECONDITION
    assert "FULL_DUPLEX_STREAMED" in finish.message


_SIDES = st.sampled_from(Side)
_EVENTS = st.one_of(
    st.builds(HeadersCame, side=_SIDES, headers=st.just(HEADERS), ended=st.booleans(), other_modes=st.sampled_from(["", "", "", "odd"])),
    st.builds(BodyCame, side=_SIDES, piece=st.binary(max_size=40), ended=st.booleans()),
    st.builds(TrailersCame, side=_SIDES),
    st.none(),
    st.sampled_from(["pick", "refuse", "half-close", "go"]),
)


@given(st.lists(_EVENTS, max_size=12))
def test_whatever_comes_each_request_is_decided_answered_and_ended_at_most_once(events: list[Incoming | str | None]) -> None:
    """No order of messages crashes a stream or leaves it stuck; messages are passed on in the order of their
    arrival.
    """
    exchange = Exchange(60)
    actions: list[Action] = []
    bodies: dict[Side, bytes] = {Side.REQUEST: b"", Side.RESPONSE: b""}
    for event in events:
        stage = exchange.stage
        if event == "pick":
            done = exchange.picked("e", [], [], next((action.body for action in actions if isinstance(action, Whole)), b""))
        elif event == "refuse":
            done = exchange.refused(REFUSED)
        elif event == "half-close":
            done = exchange.half_closed()
        elif event == "go":
            done = exchange.gone()
        else:
            assert event is None or not isinstance(event, str)
            done = exchange.hear(event)
            if isinstance(event, BodyCame) and stage in (Stage.READING, Stage.RESPONDING):
                bodies[event.side] += event.piece
        if any(isinstance(action, TooLarge) for action in done):
            done = [*done, *exchange.refused(REFUSED)]
        assert stage is not Stage.OVER or not done
        for action in done:
            actions += exchange.passed(action.piece, ended=action.ended) if isinstance(action, ResponsePiece) else (action,)
    for kind in (Whole, ResponseBegan, ResponseEnded, Abandoned, Finish, TooLarge):
        assert sum(isinstance(action, kind) for action in actions) <= 1
    assert not any(isinstance(action, Finish) for action in actions[:-1])
    messages = said(actions)
    for side in Side:
        ends = [
            number for number, message in enumerate(messages) if isinstance(message, PassBody) and message.side is side and message.ended
        ]
        assert len(ends) <= 1
        passed = b"".join(message.piece for message in messages if isinstance(message, PassBody) and message.side is side)
        assert bodies[side].startswith(passed)
    if exchange.stage is not Stage.OVER:
        exchange.gone()
    assert exchange.stage is Stage.OVER
