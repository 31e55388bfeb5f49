"""Links to other tools: patterns are checked at the start, filled where all values are known, and lead where they
say.
"""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_process.environment import read
from fairlead_testing.examples import examples
from fairlead_testing.fakes.public_data.loads import HOSTILE
from fairlead_testing.running.web_client import visitor
from fairlead_web.text.outside_links import PLACES, LinkPatterns, checked_pattern, links

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
GRAFANA = "https://grafana.example.com/d/x?var-pool={pool}&from={from}&to={to}"
LOGS = "https://logs.example.com/{namespace}/{instance}?start={fromTime}"
TRACES = "http://jaeger:16686/search?tag=fairlead.decision.id:{decision}&q={request}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("grafana.example.com/d/x", "https://grafana.example.com"),
        ("javascript:alert(1)//{pool}", "https://grafana.example.com"),
        ("https://{pool}.example.com/", "https://grafana.example.com"),
        ("https://me:secret@example.com/{pool}", "https://grafana.example.com"),
        ("https://example.com:99999/{pool}", "https://grafana.example.com"),
        ("https://example.com/?a={pol}", "{pol}"),
        ("https://example.com/?a={pool", "one pair of braces"),
        ("https://example.com/?a={{pool}}", "one pair of braces"),
        ("https://example.com/a b", "https://grafana.example.com"),
    ],
)
def test_a_pattern_that_cannot_be_a_link_ends_the_start_with_one_line(text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(LinkPatterns, {"FAIRLEAD_GRAFANA_LINK": text})
    line = str(refused.value)
    assert line.startswith("FAIRLEAD_GRAFANA_LINK: ")
    assert wrong in line
    assert "\n" not in line
    assert "secret" not in line


def test_a_link_stands_where_all_that_it_names_is_known() -> None:
    patterns = LinkPatterns(grafana=GRAFANA, traces=TRACES, logs=LOGS)
    assert links(patterns, "default/chat", NOW - HOUR, NOW, {}) == [
        ("Grafana", "https://grafana.example.com/d/x?var-pool=chat&from=1796022000000&to=1796025600000")
    ]
    of_instance = links(patterns, "default/chat", NOW - HOUR, NOW, {"instance": "chat-b1"})
    assert of_instance[1:] == [("Logs", "https://logs.example.com/default/chat-b1?start=2026-11-30T07%3A00%3A00Z")]
    of_decision = links(patterns, "default/chat", NOW - HOUR, NOW, {"decision": "d-1", "request": "r&1", "instance": None})
    assert [words for words, _ in of_decision] == ["Grafana", "Traces"]
    by_trace = LinkPatterns(traces="http://jaeger:16686/trace/{trace}")
    assert links(by_trace, "default/chat", NOW - HOUR, NOW, {"decision": "d-1", "trace": None}) == [], "a request without a trace"
    (found,) = links(by_trace, "default/chat", NOW - HOUR, NOW, {"decision": "d-1", "trace": "4b" * 16})
    assert found == ("Traces", f"http://jaeger:16686/trace/{'4b' * 16}")
    assert links(LinkPatterns(), "default/chat", NOW - HOUR, NOW, {"instance": "chat-b1"}) == []


@examples(200)
@given(value=st.text(min_size=1, max_size=40).filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)))
def test_whatever_a_client_calls_its_session_the_link_leads_to_its_own_host_with_that_name_whole(value: str) -> None:
    pattern = checked_pattern("https://logs.example.com/a?session={session}&b=1#x")
    ((_, address),) = links(LinkPatterns(logs=pattern), "default/chat", NOW - HOUR, NOW, {"session": value})
    parts = urlsplit(address)
    assert (parts.netloc, parts.path, parts.fragment) == ("logs.example.com", "/a", "x")
    assert parse_qsl(parts.query, keep_blank_values=True) == [("session", value), ("b", "1")]


def test_every_place_can_be_filled() -> None:
    about = {"instance": "i", "session": "s", "request": "r", "decision": "d", "trace": "t"}
    for place in PLACES:
        pattern = checked_pattern(f"https://example.com/{{{place}}}")
        assert len(links(LinkPatterns(logs=pattern), "default/chat", NOW - HOUR, NOW, about)) == 1, place


async def test_pages_have_the_links_that_are_set_and_no_others() -> None:
    patterns = LinkPatterns(grafana=GRAFANA, traces=TRACES, logs=LOGS)
    async with visitor(links=patterns) as set_, visitor() as unset:
        instance = set_.fake.world.instances("default/chat")[0].id
        session = quote(HOSTILE, safe="")
        expected = {
            "/": [],
            "/pools/default/chat": ["Grafana"],
            f"/pools/default/chat/instances/{instance}": ["Grafana", "Logs"],
            f"/pools/default/chat/instances/{instance}/log": ["Grafana", "Logs"],
            f"/sessions/default/chat/{session}": ["Grafana"],
            "/decisions/d-0004": ["Grafana", "Traces", "Logs"],
        }
        for path, words in expected.items():
            page = (await set_.http.get(path)).text
            shown = [part.split(">", 1)[1].split("<", 1)[0] for part in page.split('target="_blank"')[1:]]
            assert shown == words, path
            assert 'target="_blank"' not in (await unset.http.get(path)).text
        decision = (await set_.http.get("/decisions/d-0004")).text
    assert "tag=fairlead.decision.id:d-0004&amp;q=req-00004" in decision
