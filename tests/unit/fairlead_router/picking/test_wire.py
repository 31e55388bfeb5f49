"""Bytes of ext_proc, held against Envoy's own protobuf classes."""

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.picking import wire
from fairlead_router.picking.messages import (
    AnswerAtOnce,
    BodyCame,
    HeadersCame,
    PassBody,
    PassHeaders,
    PassTrailers,
    Side,
    TrailersCame,
)
from fairlead_testing.running.ext_proc_proxy import request_headers, response_headers

_NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=40)
_PAIRS = st.lists(st.tuples(_NAMES.map(str.encode), st.binary(max_size=300)), max_size=4)


def read(payload: bytes) -> ProcessingResponse:
    return ProcessingResponse.FromString(payload)


def test_headers_subset_and_modes_are_read() -> None:
    message = request_headers(path="/v1/x", headers={"X-Odd": "ü"}, ended=True, subset=["1.1.1.1:1", "2.2.2.2:2"])
    came = wire.decode(message.SerializeToString())
    assert isinstance(came, HeadersCame)
    assert (came.side, came.ended, came.subset, came.other_modes) == (Side.REQUEST, True, ("1.1.1.1:1", "2.2.2.2:2"), "")
    assert (b":path", b"/v1/x") in came.headers
    assert (b"x-odd", "ü".encode()) in came.headers


@pytest.mark.parametrize(("hint", "subset"), [("a:1, b:2", ("a:1", "b:2")), ([], ()), ("", ()), (["a:1,b:2"], ("a:1", "b:2"))])
def test_a_subset_may_be_a_list_or_a_text(hint: object, subset: tuple[str, ...]) -> None:
    came = wire.decode(request_headers(subset=hint).SerializeToString())
    assert isinstance(came, HeadersCame)
    assert came.subset == subset


def test_the_served_endpoint_is_read_from_the_responses_metadata() -> None:
    came = wire.decode(response_headers(200, {}, served="1.1.1.1:1").SerializeToString())
    assert isinstance(came, HeadersCame)
    assert (came.side, came.served, came.subset) == (Side.RESPONSE, "1.1.1.1:1", None)


def test_other_modes_are_named() -> None:
    came = wire.decode(request_headers(modes=(ProcessingMode.FULL_DUPLEX_STREAMED, ProcessingMode.NONE)).SerializeToString())
    assert isinstance(came, HeadersCame)
    assert came.other_modes == "response_body_mode is NONE"
    watching = request_headers()
    watching.observability_mode = True
    came = wire.decode(watching.SerializeToString())
    assert isinstance(came, HeadersCame)
    assert came.other_modes == "observability_mode is on"


def test_bodies_and_trailers_are_read() -> None:
    message = ProcessingRequest()
    message.response_body.body, message.response_body.end_of_stream = b"\x00\xff", True
    assert wire.decode(message.SerializeToString()) == BodyCame(Side.RESPONSE, b"\x00\xff", True)
    message.request_trailers.SetInParent()
    assert wire.decode(message.SerializeToString()) == TrailersCame(Side.REQUEST)
    assert wire.decode(b"") is None


@given(
    side=st.sampled_from(Side),
    changed=_PAIRS,
    removed=st.lists(_NAMES.map(str.encode), max_size=3),
    endpoints=st.text("0123:,.", max_size=200),
    scores=st.dictionaries(st.text("0123:.[]", min_size=1, max_size=30), st.floats(0, 1), max_size=20),
)
def test_headers_that_go_on_are_as_envoy_reads_them(
    side: Side, changed: list[tuple[bytes, bytes]], removed: list[bytes], endpoints: str, scores: dict[str, float]
) -> None:
    response = read(wire.encode(PassHeaders(side, changed, removed, endpoints, scores)))
    assert response.WhichOneof("response") == f"{side.value}_headers"
    common = getattr(response, f"{side.value}_headers").response
    assert [(one.header.key.encode(), one.header.raw_value) for one in common.header_mutation.set_headers] == changed
    assert {one.append_action for one in common.header_mutation.set_headers} <= {2}  # OVERWRITE_IF_EXISTS_OR_ADD
    assert [name.encode() for name in common.header_mutation.remove_headers] == removed
    assert common.clear_route_cache
    told = {"x-gateway-destination-endpoint": endpoints, **({"x-gateway-destination-endpoint-scores": scores} if scores else {})}
    assert json_format.MessageToDict(response.dynamic_metadata) == {"envoy.lb": told}


@given(side=st.sampled_from(Side), piece=st.binary(max_size=70_000), ended=st.booleans())
def test_bodies_that_go_on_are_as_envoy_reads_them(side: Side, piece: bytes, ended: bool) -> None:
    response = read(wire.encode(PassBody(side, piece, ended)))
    assert response.WhichOneof("response") == f"{side.value}_body"
    streamed = getattr(response, f"{side.value}_body").response.body_mutation.streamed_response
    assert (streamed.body, streamed.end_of_stream) == (piece, ended)


def test_trailers_and_answers_are_as_envoy_reads_them() -> None:
    assert read(wire.encode(PassTrailers(Side.REQUEST))).WhichOneof("response") == "request_trailers"
    assert read(wire.encode(PassTrailers(Side.RESPONSE))).WhichOneof("response") == "response_trailers"
    immediate = read(wire.encode(AnswerAtOnce(429, [(b"retry-after", b"7")], b"{}" * 100, "full"))).immediate_response
    assert (immediate.status.code, immediate.body, immediate.details) == (429, b"{}" * 100, "full")
    assert immediate.headers.set_headers[0].header.raw_value == b"7"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(payload: bytes) -> None:
    try:
        wire.decode(payload)
    except wire.DecodeError:
        return
