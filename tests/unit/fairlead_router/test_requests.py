"""Reading OpenAI bodies and headers."""

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.paths import ENDPOINTS, Endpoint, find
from fairlead_router.refusals import BadRequest
from fairlead_router.requests import forwarded_headers, parse_request, session_name


def _endpoint(path: bytes) -> Endpoint:
    endpoint = find(path)
    assert endpoint is not None
    return endpoint


CHAT, COMPLETION, EMBEDDING = (_endpoint(path) for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"))


def _chat(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields})


def test_chat_text_is_the_contents_in_order_with_nothing_between() -> None:
    messages = [
        {"role": "system", "content": "You are kind. "},
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "!"},
    ]
    parsed = parse_request(_chat(messages=messages), CHAT)
    assert parsed.prompt == "You are kind. Grüße!".encode()


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("once", b"once"), (["a", "b"], b"ab"), ([1, 2], b"\1\0\0\0\2\0\0\0"), ([[1], [2]], b"\1\0\0\0\2\0\0\0")],
)
def test_completion_prompts_may_be_text_or_tokens(prompt: object, expected: bytes) -> None:
    assert parse_request(orjson.dumps({"model": "m", "prompt": prompt}), COMPLETION).prompt == expected


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (orjson.dumps({"messages": []}), CHAT, "model"),
        (orjson.dumps({"model": 7, "messages": []}), CHAT, "model"),
        (orjson.dumps({"model": "m"}), CHAT, "messages"),
        (orjson.dumps({"model": "m", "messages": []}), CHAT, "messages"),
        (orjson.dumps({"model": "m", "messages": ["x"]}), CHAT, "messages[0]"),
        (orjson.dumps({"model": "m", "messages": [{"content": 5}]}), CHAT, "messages[0].content"),
        (orjson.dumps({"model": "m", "messages": [{"content": ["x"]}]}), CHAT, "messages[0].content[0]"),
        (orjson.dumps({"model": "m"}), COMPLETION, "prompt"),
        (orjson.dumps({"model": "m", "prompt": {"a": 1}}), COMPLETION, "prompt"),
        (orjson.dumps({"model": "m", "prompt": [1, -2]}), COMPLETION, "prompt"),
        (orjson.dumps({"model": "m", "prompt": [1, "x"]}), COMPLETION, "prompt"),
        (orjson.dumps({"model": "m"}), EMBEDDING, "input"),
        (_chat(stream="yes"), CHAT, "stream"),
        (_chat(stream_options=[]), CHAT, "stream_options"),
        (_chat(max_tokens="many"), CHAT, "max_tokens"),
        (_chat(max_completion_tokens=-1), CHAT, "max_completion_tokens"),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_field(body: bytes, kind: Endpoint, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(body, kind)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b'{"model": "\\ud800"}'])
def test_what_is_not_a_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(body, CHAT)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["model", "messages", "prompt", "content", "stream", "max_tokens"]), inner, max_size=4)
        ),
        max_leaves=12,
    ).map(orjson.dumps)
)
def test_no_body_whatever_raises_anything_else(body: bytes) -> None:
    statuses = set()
    for kind in ENDPOINTS:
        try:
            parse_request(body, kind)
        except BadRequest as problem:
            statuses.add(problem.status)
    assert statuses <= {400}


def test_a_request_for_the_pool_is_renamed_to_the_model_and_nothing_else_changes() -> None:
    parsed = parse_request(_chat(model="default/chat", temperature=0.5, max_completion_tokens=9), CHAT)
    renamed = orjson.loads(parsed.renamed("mock"))
    assert renamed == {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5, "max_completion_tokens": 9}
    assert parsed.max_output_tokens == 9


def test_system_and_hop_by_hop_headers_of_clients_are_withheld_and_others_passed() -> None:
    headers = [
        (b"host", b"gateway"),
        (b"authorization", b"Bearer k"),
        (b"x-api-key", b"k"),
        (b"cookie", b"a=b"),
        (b"connection", b"close, x-private"),
        (b"x-private", b"1"),
        (b"x-fairlead-instance", b"i7"),
        (b"x-prefiller-host-port", b"10.0.0.1:80"),
        (b"x-gateway-destination-endpoint", b"10.0.0.1:80"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"12"),
        (b"x-custom", b"kept"),
        (b"x-request-id", b"abc"),
        (b"x-session-id", b"s1"),
    ]
    block, session, request_id = forwarded_headers(headers, b"x-session-id")
    assert block == b"x-custom: kept\r\nx-session-id: s1\r\n"
    assert (session, request_id) == (b"s1", b"abc")
    block, _, _ = forwarded_headers(headers, b"x-session-id", credentials=True)
    assert block == b"authorization: Bearer k\r\nx-api-key: k\r\ncookie: a=b\r\nx-custom: kept\r\nx-session-id: s1\r\n"


def test_thousands_of_headers_and_of_names_in_connection_hold_up_nobody() -> None:
    named = b",".join(b"h%d" % number for number in range(10_000))
    headers = [(b"connection", named), *((b"x%d" % (number % 10), b"") for number in range(4000)), (b"h9999", b"1")]
    begun = time.process_time()
    block, _, _ = forwarded_headers(headers, b"x-session-id")
    assert time.process_time() - begun < 0.3
    assert b"h9999" not in block


@pytest.mark.parametrize("field", ["model", "messages", "stream", "stream_options", "max_tokens"])
def test_a_value_that_is_nested_as_deep_as_json_may_be_is_a_400_like_any_other(field: str) -> None:
    deep = b"[" * 1000 + b"]" * 1000
    body = orjson.dumps({"model": "m", "messages": [{"content": "hello"}], field: "HERE"}).replace(b'"HERE"', b"[%b]" % deep)
    with pytest.raises(BadRequest) as problem:
        parse_request(body, CHAT)
    assert problem.value.status == 400


def test_a_refusal_writes_no_more_of_a_value_than_it_shows() -> None:
    body = b'{"model": "m", "messages": [[' + b"1.5," * 1_000_000 + b"1]]}"
    begun = time.process_time()
    orjson.loads(body)
    read = time.process_time()
    with pytest.raises(BadRequest):
        parse_request(body, CHAT)
    assert time.process_time() - read < 3 * (read - begun) + 0.05


def test_the_pools_own_session_header_wins_over_those_of_peers() -> None:
    headers = [(b"x-llm-d-session-id", b"peer"), (b"x-chat", b"own")]
    assert forwarded_headers(headers, b"x-chat")[1] == b"own"
    assert forwarded_headers(headers[:1], b"x-chat")[1] == b"peer"
    assert forwarded_headers([], b"x-chat")[1] is None


@given(st.text(min_size=1, max_size=400))
def test_session_names_are_printable_short_and_distinct(raw: str) -> None:
    name = session_name(raw)
    assert name.isprintable()
    assert len(name) <= 200
    assert name == raw or name.startswith("hashed-")
    assert session_name(raw + "x") != name
