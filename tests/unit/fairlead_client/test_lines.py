"""The lines of the routers' stream, read and written by different versions."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.shares import InstanceWork, OthersShare, placed
from fairlead.tables import PoolKey
from fairlead_client.lines import (
    BindingsLine,
    GatewayKeysLine,
    HeartbeatLine,
    KeptSession,
    KeptSessionsLine,
    LineCutter,
    OthersLine,
    PoolDeletedLine,
    StreamLine,
    SyncedLine,
    TableLine,
    decode_line,
    encode_line,
)
from fairlead_client.problems import UnreadableLine
from fairlead_testing.builders.routing_tables import routing_table

POOL = PoolKey(namespace="default", name="chat")
SHARE = OthersShare(pool=POOL, names=("a", "b"), age_seconds=1.5, work=(InstanceWork(instance="i0"),), prompts=(placed("i0", [2**64 - 1]),))
LINES: list[StreamLine] = [
    TableLine(table=routing_table(["127.0.0.1:1"])),
    PoolDeletedLine(pool=POOL),
    BindingsLine(bindings=()),
    GatewayKeysLine(keys=(GatewayKeyFacts(id="k1", digest="ab" * 32, models=("m",), requests_per_minute=60),)),
    KeptSessionsLine(sessions=(KeptSession(pool=POOL, session="s1", until=1_800_000_000.0),)),
    OthersLine(share=SHARE),
    SyncedLine(),
    HeartbeatLine(),
]


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(line) for line in LINES} == set(get_args(StreamLine))


@pytest.mark.parametrize("line", LINES, ids=lambda line: type(line).__name__)
def test_a_line_is_one_json_object_with_its_type_and_comes_back_as_it_was(line: StreamLine) -> None:
    encoded = encode_line(line)
    assert encoded.count(b"\n") == 1
    assert encoded.endswith(b"\n")
    assert isinstance(msgspec.json.decode(encoded)["type"], str)
    assert decode_line(encoded.rstrip(b"\n")) == line


@pytest.mark.parametrize("line", LINES, ids=lambda line: type(line).__name__)
def test_members_that_this_version_does_not_know_are_skipped_wherever_they_stand(line: StreamLine) -> None:
    document = msgspec.json.decode(encode_line(line))
    assert decode_line(msgspec.json.encode({"newer": [1], **document, "later": {"type": "x"}})) == line


def test_a_line_of_a_kind_that_this_version_does_not_know_is_skipped() -> None:
    assert decode_line(b'{"type":"weather","table":7}') is None


@pytest.mark.parametrize(
    "line",
    [b"not json", b"7", b"{}", b'{"type":7}', b'{"type":"table"}', b'{"type":"table","table":{}}', b'{"type":"pool_deleted"}', b'"\xff"'],
)
def test_a_line_that_no_version_sends_is_an_error(line: bytes) -> None:
    with pytest.raises(UnreadableLine):
        decode_line(line)


@given(st.lists(st.sampled_from(LINES), max_size=8), st.data())
def test_however_a_stream_is_cut_into_pieces_its_lines_are_the_same(lines: list[StreamLine], data: st.DataObject) -> None:
    content = b"".join(encode_line(line) for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))
    cutter = LineCutter()
    pieces = [content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert [line for piece in pieces for line in cutter.feed(piece)] == lines


def test_a_line_without_an_end_is_given_up() -> None:
    cutter = LineCutter(longest=100)
    assert list(cutter.feed(b'{"type":' + b" " * 90)) == []
    with pytest.raises(UnreadableLine, match="longer than 100 bytes"):
        list(cutter.feed(b" " * 10))


def test_many_lines_in_one_piece_may_be_longer_together() -> None:
    assert len(list(LineCutter(longest=100).feed(encode_line(HeartbeatLine()) * 50))) == 50
