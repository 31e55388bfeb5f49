"""A publisher's bytes become messages wherever they are cut; all other bytes are refused within bounds."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead_router.kv_events.zmtp
from fairlead.plausibility import MESSAGE_BYTES
from fairlead_router.kv_events.zmtp import COMMAND, GREETING_BYTES, LONG, MORE, OPENING, SUBSCRIPTION, NotZmtp, PublisherReader, command
from fairlead_testing.examples import examples
from fairlead_testing.steps import assert_linear

PUBLISHER = OPENING.replace(b"SUB", b"PUB")


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body


def sent(message: list[bytes]) -> bytes:
    return b"".join(frame(part, MORE) for part in message[:-1]) + frame(message[-1])


def read(data: bytes, cuts: list[int]) -> tuple[list[list[bytes]], PublisherReader]:
    reader, messages, start = PublisherReader(), [], 0
    for end in (*sorted(cuts), len(data)):
        messages += list(reader.feed(data[start:end]))
        start = max(start, end)
    return messages, reader


messages = st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=4), max_size=6)


@given(messages, st.lists(st.integers(0, 3000), max_size=8))
@examples(200)
def test_messages_are_the_same_wherever_their_bytes_are_cut(wanted: list[list[bytes]], cuts: list[int]) -> None:
    found, reader = read(PUBLISHER + b"".join(map(sent, wanted)), cuts)
    assert found == wanted
    assert reader.held == 0
    assert reader.answer == SUBSCRIPTION


@given(st.binary(max_size=400), st.booleans(), st.lists(st.integers(0, 400), max_size=4))
@examples(300)
def test_any_bytes_are_messages_or_refused(data: bytes, ready: bool, cuts: list[int]) -> None:
    try:
        found, reader = read(PUBLISHER * ready + data, cuts)
    except NotZmtp:
        return
    assert reader.held <= len(PUBLISHER) + len(data)
    assert ready or not found


def test_a_heartbeat_is_answered_with_what_came_with_it() -> None:
    _, reader = read(PUBLISHER + command(b"PING", b"\0\x64context"), [])
    assert reader.answer == SUBSCRIPTION + command(b"PONG", b"context")


REFUSED = {
    "HTTP": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "an older version": PUBLISHER[:10] + b"\x01" + PUBLISHER[11:],
    "a password": PUBLISHER[:12] + b"PLAIN" + PUBLISHER[17:],
    "a subscriber": OPENING,
    "a message before it is ready": PUBLISHER[:GREETING_BYTES] + frame(b"x"),
    "a size that no message has": PUBLISHER + bytes([LONG]) + b"\xff" * 8,
    "one byte more than a message may have": PUBLISHER + bytes([LONG]) + (MESSAGE_BYTES + 1).to_bytes(8, "big"),
    "frames that are too large together": PUBLISHER + frame(bytes(MESSAGE_BYTES - 5), MORE) + frame(bytes(6)),
    "frames without an end": PUBLISHER + frame(b"", MORE) * 50,
    "a large command": PUBLISHER + bytes([COMMAND | LONG]) + (1 << 20).to_bytes(8, "big"),
    "flags that nobody knows": PUBLISHER + b"\x80\x01x",
    "a refusal": PUBLISHER + command(b"ERROR", b"\x02no"),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_is_no_publisher_is_refused(data: bytes) -> None:
    with pytest.raises(NotZmtp):
        read(data, [])


SHAPES: dict[str, Callable[[int], bytes]] = {
    "empty frames": lambda size: PUBLISHER + frame(b"") * (size // 2),
    "small messages": lambda size: PUBLISHER + sent([b"kv@pod@m", bytes(8), b"batch"]) * (size // 24),
    "one message": lambda size: PUBLISHER + frame(bytes(size)),
    "heartbeats": lambda size: PUBLISHER + command(b"PING", b"\0\0x") * (size // 10),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("piece", [64, 100_000])
def test_work_is_linear_in_small_pieces_too(shape: Callable[[int], bytes], piece: int) -> None:
    def parse(data: bytes) -> None:
        reader = PublisherReader()
        for start in range(0, len(data), piece):
            list(reader.feed(data[start : start + piece]))

    assert_linear(parse, shape, 20_000, fairlead_router.kv_events.zmtp)
