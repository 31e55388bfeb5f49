"""Messages to a tab: whole events with the fields that its page reads, and the parts that it does not have yet."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_web.live.tab_messages import EventCutter, PartsSent, reads_of, slimmed, value_of

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


def part(name: str, text: str) -> str:
    return f'<hx-partial hx-target="#{name}" hx-swap="outerMorph"><p id="{name}">{text}</p></hx-partial>'


def rendered(**texts: str) -> bytes:
    return "".join(part(name, text) for name, text in texts.items()).encode()


def test_only_parts_that_differ_are_sent() -> None:
    sent = PartsSent()
    first = sent.message(rendered(totals="1", cards="a\nb"), whole=False)
    assert first == f"data: {part('totals', '1')}{part('cards', 'a')[: -len('</p></hx-partial>')]}\ndata: b</p></hx-partial>\n\n".encode()
    assert sent.message(rendered(totals="1", cards="a\nb"), whole=False) == b""
    assert sent.message(rendered(totals="2", cards="a\nb"), whole=False) == f"data: {part('totals', '2')}\n\n".encode()


def test_ages_alone_are_no_news_but_come_with_what_is() -> None:
    sent = PartsSent()
    sent.message(rendered(totals="1", asof="<time>10:00</time>"), whole=False)
    assert sent.message(rendered(totals="1", asof="<time>10:01</time>"), whole=False) == b""
    told = sent.message(rendered(totals="2", asof="<time>10:02</time>"), whole=False)
    assert b"10:02" in told
    assert b"#totals" in told


def test_a_whole_message_has_every_part_once_more() -> None:
    sent = PartsSent()
    sent.message(rendered(totals="1", cards="a"), whole=False)
    again = sent.message(rendered(totals="1", cards="a"), whole=True)
    assert again.count(b"<hx-partial") == 2


def test_parts_of_other_messages_are_remembered() -> None:
    sent = PartsSent()
    sent.message(rendered(totals="1"), whole=False)
    assert b"#totals" not in sent.message(rendered(cards="a", totals="1"), whole=False)
    assert sent.message(b"", whole=False) == b""
