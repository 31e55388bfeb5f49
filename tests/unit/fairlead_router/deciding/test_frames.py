"""Frames between routers: they are read as they were written, and bytes that are not frames end the connection."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.moves import MoveOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest, TraceContext
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import (
    Abandoned,
    Asked,
    Completed,
    FirstToken,
    Generated,
    InstanceFailed,
    InstanceWorked,
    Prefilled,
    SentElsewhere,
    Transferred,
    UnderWay,
)
from fairlead_router.deciding.frames import (
    LARGEST_FRAME,
    MOST_BLOCKS,
    Alive,
    Body,
    Challenge,
    Frame,
    FrameError,
    FrameReader,
    Gone,
    Hello,
    Join,
    Leave,
    Proof,
    Welcome,
    bounded,
    encode,
)

REQUEST = RoutingRequest(
    id="r",
    arrived_at=1.5,
    prompt_tokens=9,
    blocks=(2**64 - 1, 0),
    first_bytes_hash=2**63,
    session="é",
    priority_class="high",
    tenant="named/0",
    engine_blocks=(7,),
    trace=TraceContext(trace_id="4b" * 16, span_id="0a" * 8, parent="0b" * 8, state="a=1", asks=True, operation="chat", model="m"),
)
BODIES: list[Body] = [
    Hello(protocol=1, router="router-0", nonce=b"n", now=2.0),
    Challenge(nonce=b"m"),
    Proof(code=b"c"),
    Welcome(code=b"d"),
    Alive(),
    Join(uid="u"),
    Leave(),
    Gone(),
    Dispatch(
        request=REQUEST,
        instance="i0",
        address="i0:8000",
        fallbacks=("i1",),
        decision_id="d",
        reason=DecisionReason.PREFIX_AFFINITY,
        hit_tokens=3,
        miss_tokens=6,
    ),
    Refusal(request=REQUEST, reason=RejectionReason.SHUTTING_DOWN, status=503, retry_after_seconds=1.0, message="later"),
    Asked(request=REQUEST, submitted_at=1.0),
    UnderWay(
        request=REQUEST,
        submitted_at=1.0,
        instance="i0",
        decode=None,
        hit_tokens=3,
        dispatched_at=1.25,
        is_prefilled=True,
        generated_tokens=4,
    ),
    Prefilled(request="r"),
    FirstToken(request="r"),
    Transferred(request="r"),
    Generated(request="r", output_tokens=3),
    Completed(request="r", output_tokens=3, cached_tokens=None),
    Abandoned(request="r", outcome=MoveOutcome.CANCELLED),
    SentElsewhere(request="r", failed="i0", reached=False, instance="i1", decode="i2"),
    SentElsewhere(request="r", failed="i0", reached=True, instance="i1", decode=None, by_proxy=True),
    InstanceFailed(instance="i0"),
    InstanceWorked(instance="i0"),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_what_is_said_is_heard_as_it_was_said(body: Body) -> None:
    assert list(FrameReader().feed(encode(Frame("ns/pool", body)))) == [Frame("ns/pool", body)]


@given(st.lists(st.integers(1, 200), min_size=1))
def test_frames_come_whole_however_their_bytes_are_cut(lengths: list[int]) -> None:
    content = b"".join(encode(Frame("ns/pool", body)) for body in BODIES)
    reader, begin = FrameReader(), 0
    heard: list[Frame] = []
    for length in lengths:
        heard += reader.feed(content[begin : begin + length])
        begin += length
    heard += reader.feed(content[begin:])
    assert [frame.body for frame in heard] == BODIES


@given(st.binary(min_size=1, max_size=60))
def test_bytes_that_are_no_frame_are_found_out(noise: bytes) -> None:
    reader = FrameReader()
    try:
        frames = list(reader.feed(len(noise).to_bytes(4, "big") + noise))
    except FrameError:
        return
    assert all(type(frame.body) in {type(body) for body in BODIES} for frame in frames)


@pytest.mark.parametrize(
    "content",
    [
        (LARGEST_FRAME + 1).to_bytes(4, "big"),
        b"\0\0\0\4" + b"\x93\x63\xa0\xc0",
        b"\0\0\0\1\xc1",
        encode(Frame("", Join(uid="u"))).replace(b"uid", b"uie"),
    ],
    ids=["too long", "unknown kind", "no MessagePack", "a field is missing"],
)
def test_what_cannot_be_meant_is_an_error(content: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader().feed(content))


def test_what_may_be_said_grows_with_trust() -> None:
    reader = FrameReader(largest=100)
    content = encode(Frame("ns/pool", Join(uid="u" * 200)))
    with pytest.raises(FrameError, match="bytes"):
        list(reader.feed(content))
    reader = FrameReader(largest=100)
    frames = reader.feed(encode(Frame("", Alive())) + content)
    assert next(frames).body == Alive()
    reader.largest = LARGEST_FRAME
    assert next(frames).body == Join(uid="u" * 200)


def test_the_longest_prompt_fits_into_a_frame_with_the_blocks_of_its_beginning() -> None:
    blocks = tuple(2**64 - 1 - number for number in range(3 * MOST_BLOCKS))
    request = replace(REQUEST, blocks=blocks, engine_blocks=blocks, session="é" * 128, id="r" * 128)
    told = bounded(Asked(request=request, submitted_at=1.0))
    (frame,) = FrameReader().feed(encode(Frame("n" * 253 + "/" + "p" * 253, told)))
    assert isinstance(frame.body, Asked)
    assert frame.body.request.blocks == frame.body.request.engine_blocks == blocks[:MOST_BLOCKS]
    assert bounded(frame.body) is frame.body
