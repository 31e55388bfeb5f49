"""A tab is sent the parts that it does not have yet."""

from fairlead_web.live.parts_sent import PartsSent


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
