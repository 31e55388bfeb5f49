"""The priority of a class is written into a request, by the kind of engine; nothing else changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.tables import KV_USAGE_METRICS
from fairlead_router.picking.picker import OTHER_PATH
from fairlead_router.protocols.paths import ENDPOINTS, Endpoint, Handling, find
from fairlead_router.protocols.requests import ParsedRequest, forwarded_headers
from fairlead_router.relaying.class_priorities import PLACES
from fairlead_router.relaying.usage_asking import ask_for_usage
from fairlead_testing.examples import examples

CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
ANY_DOCUMENT = {"model": "m", "messages": [], "prompt": "hi", "input": "hi"}
ROUTED = [endpoint for endpoint in ENDPOINTS if endpoint.handling is Handling.ROUTED]
SIGNS = {"vllm": -1, "simulated": -1, "sglang": 1}
KINDS = sorted(KV_USAGE_METRICS)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_path = pytest.mark.parametrize("endpoint", ROUTED, ids=lambda endpoint: endpoint.path)


def passed(kind: str, document: dict[str, Any], priority: int, path: str = "/v1/chat/completions") -> tuple[bytes, bytes]:
    """Return the body before and after."""
    endpoint, body = find(path.encode()), orjson.dumps(document)
    assert endpoint is not None
    return body, PLACES[kind].body(body, ParsedRequest(body, document, endpoint), endpoint, priority)


def head(kind: str, path: str, priority: int, *sent: tuple[bytes, bytes]) -> bytes:
    endpoint = find(path.encode())
    assert endpoint is not None
    return PLACES[kind].head(forwarded_headers(sent, b"")[0], endpoint, priority)


@examples(100)
@given(
    st.sampled_from(KINDS),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.sampled_from("abc"), st.integers(-(2**63), 2**63 - 1)),
)
def test_engines_get_the_class_and_not_what_the_client_wrote(kind: str, priority: int, written: int | None, more: dict[str, int]) -> None:
    document = {**more, **CHAT, **({} if written is None else {"priority": written})}
    before, after = passed(kind, document, priority)
    needs_none = kind != "sglang" and not priority and written is None
    assert orjson.loads(after) == (document if needs_none else {**document, "priority": SIGNS[kind] * priority})
    assert not needs_none or after is before, "most requests are of no class, and cost nothing"
    asked, change = ask_for_usage(after, document)
    assert change is not None
    assert change.undone(asked) == after, "the option for usage can still be taken out"


@every_kind
@every_path
@pytest.mark.parametrize("written", [-1000, 5, "-7", None, [1]])
@pytest.mark.parametrize("priority", [7, 0])
def test_no_path_has_a_door_for_a_priority_of_the_clients_own(kind: str, endpoint: Endpoint, written: object, priority: int) -> None:
    _, after = passed(kind, {**ANY_DOCUMENT, "priority": written}, priority, endpoint.path)
    assert orjson.loads(after)["priority"] == SIGNS[kind] * priority
    for name in (PLACES[kind].header, b"x-override-priority"):
        lines = head(kind, endpoint.path, priority, (name, b"-9"), (b"x-vllm-priority-of", b"1"), (name, b"")).splitlines()
        lines.remove(b"x-vllm-priority-of: 1")
        value = PLACES[kind].header_value(endpoint.path, priority)
        assert lines == ([] if value is None else [b"%b: %b" % (PLACES[kind].header, value)])


@every_kind
@every_path
def test_the_class_is_written_where_the_kind_reads_it_and_nowhere_else(kind: str, endpoint: Endpoint) -> None:
    before, after = passed(kind, ANY_DOCUMENT, 7, endpoint.path)
    if endpoint.path in PLACES[kind].fields:
        assert orjson.loads(after) == {**ANY_DOCUMENT, "priority": SIGNS[kind] * 7}
    else:
        assert after is before
    value = b"%d" % (SIGNS[kind] * 7) if endpoint.path == "/v1/messages" else None
    assert PLACES[kind].header_value(endpoint.path, 7) == value, "Anthropic's protocol has no field for it"


def test_a_vllm_takes_a_request_without_a_priority_for_one_of_priority_0_and_an_sglang_for_the_last_of_all() -> None:
    before, after = passed("vllm", CHAT, 0)
    assert after is before and head("vllm", "/v1/messages", 0) == b""
    assert orjson.loads(passed("sglang", CHAT, 0)[1])["priority"] == 0
    assert head("sglang", "/v1/messages", 0) == b"x-override-priority: 0\r\n"


@every_kind
def test_a_path_that_only_a_pickers_proxy_understands_has_both(kind: str) -> None:
    body = orjson.dumps(CHAT)
    after = PLACES[kind].body(body, ParsedRequest(body, CHAT, OTHER_PATH), OTHER_PATH, 7)
    assert orjson.loads(after)["priority"] == SIGNS[kind] * 7
    assert PLACES[kind].header_value(OTHER_PATH.path, 7) == b"%d" % (SIGNS[kind] * 7)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/rerank", "/v1/score"])
def test_an_sglang_gets_no_field_that_it_would_give_to_nobody(path: str) -> None:
    before, after = passed("sglang", ANY_DOCUMENT, 7, path)
    assert after is before


def test_every_kind_of_engine_has_its_places() -> None:
    assert PLACES.keys() == KV_USAGE_METRICS.keys() == SIGNS.keys()


@every_kind
def test_a_completion_has_it_too(kind: str) -> None:
    _, after = passed(kind, {"model": "m", "prompt": "hi"}, -3, "/v1/completions")
    assert orjson.loads(after)["priority"] == SIGNS[kind] * -3
