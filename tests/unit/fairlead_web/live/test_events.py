"""Events of the API's stream, cut where they end and slimmed to what a page reads."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_web.live.events import EventCutter, reads_of, slimmed, value_of

POOLS = b'event: pools\nid: 17\ndata: [{"name":"chat","serving":4},{"name":"code"}]\n\n'
STREAM = [b": open\n\n", POOLS, b": keep-alive\n\n", b"event: poll\ndata: {}\n\n", POOLS]


@given(st.lists(st.integers(1, 60)))
def test_events_come_whole_however_the_stream_is_cut(sizes: list[int]) -> None:
    whole, cutter, found = b"".join(STREAM), EventCutter(), []
    for size in [*sizes, len(whole)]:
        found += cutter.feed(whole[:size])
        whole = whole[size:]
    assert found == STREAM


def test_an_event_that_is_not_whole_waits() -> None:
    cutter = EventCutter()
    assert cutter.feed(POOLS[:-1]) == []
    assert cutter.feed(b"\n") == [POOLS]


def test_an_event_has_a_name_and_an_id() -> None:
    assert (value_of(POOLS, b"event"), value_of(POOLS, b"id")) == ("pools", "17")
    assert (value_of(STREAM[3], b"event"), value_of(STREAM[3], b"id")) == ("poll", "")
    assert value_of(b'data: [{"a":1}]\nevent: no\n\n', b"id") == ""


def test_items_keep_their_number_and_what_is_read() -> None:
    assert slimmed(POOLS, reads_of("pools=name")) == b'event: pools\nid: 17\ndata: [{"name":"chat"},{"name":"code"}]\n\n'
    assert slimmed(POOLS, reads_of("pools=serving pools=none")) == b'event: pools\nid: 17\ndata: [{"serving":4},{}]\n\n'
    assert slimmed(POOLS, reads_of("nothing")) == b"event: pools\nid: 17\ndata: [{},{}]\n\n"
    assert slimmed(POOLS, reads_of("instances=id")) == b"event: pools\nid: 17\ndata: [{},{}]\n\n"


def test_who_does_not_say_what_is_read_gets_all_and_what_is_no_list_stays() -> None:
    assert slimmed(POOLS, reads_of(None)) == POOLS
    for event in (STREAM[0], STREAM[2], STREAM[3]):
        assert slimmed(event, reads_of("nothing")) == event
