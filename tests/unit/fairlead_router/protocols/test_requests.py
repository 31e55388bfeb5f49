"""Reading OpenAI bodies and headers."""

import json
import math
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fairlead_router.gateway.routed_requests import prompt_size
from fairlead_router.picking.finding import session_headers
from fairlead_router.protocols import requests
from fairlead_router.protocols.paths import ENDPOINTS, Endpoint, Handling, find
from fairlead_router.protocols.prompts import Prompt
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.protocols.rendered_chats import mark
from fairlead_router.protocols.requests import ParsedRequest, forwarded_headers, parse_request, request_head
from fairlead_testing.examples import examples


def _endpoint(path: bytes) -> Endpoint:
    endpoint = find(path)
    assert endpoint is not None
    return endpoint


CHAT, COMPLETION, EMBEDDING = (_endpoint(path) for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"))


def _chat(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields})


def test_chat_text_is_the_contents_in_order_behind_the_marks_of_their_roles() -> None:
    messages = [
        {"role": "system", "content": "You are kind. "},
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "!"},
    ]
    parsed = parse_request(_chat(messages=messages), CHAT)
    marked = (mark("system"), b"You are kind. ", mark("user"), "Grüße".encode(), mark("assistant"), mark("user"), b"!")
    assert parsed.prompt == Prompt(marked)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("once", b"once"), (["a", "b"], b"ab"), ([1, 2], b"\1\0\0\0\2\0\0\0"), ([[1], [2]], b"\1\0\0\0\2\0\0\0")],
)
def test_completion_prompts_may_be_text_or_tokens(prompt: object, expected: bytes) -> None:
    assert parse_request(orjson.dumps({"model": "m", "prompt": prompt}), COMPLETION).prompt.text == expected


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (orjson.dumps({"model": 7, "messages": []}), CHAT, "model"),
        (orjson.dumps({"model": "m"}), CHAT, "messages"),
        (orjson.dumps({"model": "m", "messages": "x"}), CHAT, "messages"),
        (orjson.dumps({"model": "m"}), COMPLETION, "prompt"),
        (orjson.dumps({"model": "m"}), EMBEDDING, "input"),
        (_chat(stream="perhaps"), CHAT, "stream"),
        (_chat(stream=2), CHAT, "stream"),
        (_chat(stream_options=[]), CHAT, "stream_options"),
        (_chat(stream_options={"include_usage": "perhaps"}), CHAT, "stream_options.include_usage"),
        (_chat(max_tokens="many"), CHAT, "max_tokens"),
        (_chat(max_tokens=1.5), CHAT, "max_tokens"),
        (_chat(max_completion_tokens=-1), CHAT, "max_completion_tokens"),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_field(body: bytes, kind: Endpoint, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(body, kind)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats()
    | st.sampled_from(["true", "FALSE", "On", "off", "t", "F", "yes", "n", "1", "0", " true", "2", "", "+1"])
    | st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", " ", "\n", "+", "-", "++"]),
        st.integers(0, 10**25) | st.sampled_from(["1_000", "1__0", "_1", "007", "", "\u0663"]),
        st.sampled_from(["", ".0", ".00", ".", ".5", "_", "e2"]),
        st.sampled_from(["", " ", "\t"]),
    )
)


def _as_engines_read(kind: Any, value: object) -> object:
    """Return the value that pydantic makes, as in vLLM's request models; raise ValueError where it refuses."""
    return TypeAdapter(kind).validate_python(value)


@given(st.sampled_from(["stream", "max_tokens", "max_completion_tokens"]), SCALARS)
def test_scalars_are_read_as_engines_read_them(field: str, value: object) -> None:
    body = json.dumps({"model": "m", "messages": [], field: value}).encode()
    try:
        expected = _as_engines_read(bool | None if field == "stream" else int | None, json.loads(body)[field])
        if field != "stream" and expected is not None and expected < 0:  # type: ignore[operator]  # vLLM takes no negative number either
            raise ValueError
    except ValueError:
        if isinstance(value, float) and not abs(value) < 2**63:  # 1e300 is a whole number here, and NaN and Infinity are not JSON
            return
        with pytest.raises(BadRequest):
            parse_request(body, CHAT)
        return
    parsed = parse_request(body, CHAT)
    assert parsed.body == body
    if field == "stream":
        assert parsed.stream is bool(expected)
    else:
        assert parsed.max_output_tokens == min(expected or 0, 2**53)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        ("/v1/embeddings", {"input": "a", "stream": "perhaps", "max_tokens": "many", "stream_options": 1}),
        ("/v1/responses", {"input": "a", "max_tokens": "many", "stream_options": []}),
        ("/v1/messages", {"messages": [], "max_completion_tokens": [], "stream_options": 1}),
        ("/tokenize", {"prompt": "a", "stream": []}),
    ],
)
def test_fields_that_a_protocol_does_not_know_are_no_concern_of_the_router(endpoint: str, fields: dict[str, object]) -> None:
    parsed = parse_request(orjson.dumps({"model": "m", **fields}), _endpoint(endpoint.encode()))
    assert (parsed.stream, parsed.max_output_tokens, parsed.include_usage) == (False, 0, False)


@pytest.mark.parametrize(
    ("kind", "fields", "prompt"),
    [
        (CHAT, {"messages": []}, b""),
        (CHAT, {"messages": ["x", {"content": "a"}, None]}, b"a"),
        (CHAT, {"messages": [{"content": 5}, {"content": {"text": "a"}}, {"role": "user"}]}, mark("user")),
        (
            CHAT,
            {"messages": [{"content": ["plain ", {"type": "text", "text": "text"}, {"type": "image_url"}, "!"]}]},
            b"plain \xfdtext\xfd!",
        ),
        (COMPLETION, {"prompt": []}, b""),
        (COMPLETION, {"prompt": [[]]}, b""),
        (COMPLETION, {"prompt": [1, -2]}, b""),
        (COMPLETION, {"prompt": [1.0, "x"]}, b"x"),
        (EMBEDDING, {"input": [{"text": "a"}, "b", {"content": [{"type": "text", "text": "c"}]}]}, b"abc"),
        (EMBEDDING, {"input": {"text": "a"}}, b"a"),
        (EMBEDDING, {"input": []}, b""),
    ],
)
def test_a_prompt_that_routing_cannot_read_is_no_reason_to_refuse_it(kind: Endpoint, fields: dict[str, object], prompt: bytes) -> None:
    body = orjson.dumps({"model": "m", **fields})
    parsed = parse_request(body, kind)
    assert (parsed.prompt.text, parsed.body) == (prompt, body)


@pytest.mark.parametrize("missing", [{}, {"model": None}, {"model": ""}])
def test_a_body_may_leave_the_model_to_the_engine(missing: dict[str, object]) -> None:
    parsed = parse_request(orjson.dumps({**missing, "messages": []}), CHAT)
    assert parsed.model is None
    assert orjson.loads(parsed.renamed("m")) == {"model": "m", "messages": []}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_body_in_another_encoding_of_json_is_read_and_reaches_engines_in_utf_8(encoding: str) -> None:
    text = '{"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}'
    parsed = parse_request(text.encode(encoding), CHAT)
    assert (parsed.prompt.text, parsed.body) == (mark("user") + "Grüße".encode(), text.encode())


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1.5E+999", b"9" * 400])
def test_numbers_that_engines_take_and_json_does_not_reach_them_as_they_came(number: bytes) -> None:
    body = b'{"model": "pool", "messages": [{"content": "NaN \\" Infinity"}], "temperature": %b, "max_tokens": 7}' % number
    parsed = parse_request(body, CHAT)
    assert (parsed.prompt.text, parsed.max_output_tokens, parsed.body) == (b'NaN " Infinity', 7, body)
    assert parsed.renamed("m") == body.replace(b'"pool"', b'"m"')


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.builds("{}{}.{}e{}".format, st.sampled_from(("", "-")), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-400, 400)),
    st.builds(
        lambda digit, count, end: str(digit) * count + end, st.integers(1, 9), st.integers(290, 420), st.sampled_from(("", ".5", "e-200"))
    ),
)
"""Numbers as a JSON text writes them, including those that no double holds."""


def as_python_reads(text: bytes) -> Any:
    """Return the number as Python reads it; None if it is no finite double."""

    def number(found: str) -> float | None:
        value = float(found)
        return value if math.isfinite(value) else None

    def whole(found: str) -> float | int | None:
        return value if -(2**63) <= (value := int(found)) < 2**64 else number(found)

    return json.loads(text, parse_constant=lambda _: None, parse_float=number, parse_int=whole)


@given(
    st.lists(
        st.one_of(NUMBERS, st.sampled_from(("NaN", "Infinity", "-Infinity")), st.text('aN\\"1e9.-', max_size=8).map(json.dumps)), max_size=8
    )
)
def test_every_number_that_a_double_holds_is_read_beside_any_that_it_does_not(values: list[str]) -> None:
    body = '{{"model": "pool", "prompt": "x", "values": [{}]}}'.format(", ".join(["NaN", *values])).encode()
    assert parse_request(body, COMPLETION).document == as_python_reads(body)


@pytest.mark.parametrize("part", [b'\\"', b"1", b"e1", b'"', b"-", b"1.", b"NaN"])
def test_a_body_that_is_no_json_is_refused_with_work_that_grows_as_its_length(part: bytes) -> None:
    with pytest.raises(BadRequest):  # a square would take hours, and the test's timeout would end it
        parse_request(b'{"a": NaN, "b": ' + part * (1_500_000 // len(part)), COMPLETION)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b'{"model": "\\ud800"}', b"NaN", b'{"a": -NaN}', b"\xff\xfe{"])
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
        (b"x-override-bootstrap-host", b"10.0.0.1"),
        (b"x-override-priority", b"1000"),
        (b"x-gateway-destination-endpoint", b"10.0.0.1:80"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"12"),
        (b"x-custom", b"kept"),
        (b"x-request-id", b"abc"),
        (b"x-session-id", b"s1"),
    ]
    block, session = forwarded_headers(headers, b"x-session-id")
    assert block == b"x-custom: kept\r\nx-session-id: s1\r\n"
    assert session == {b"x-session-id": b"s1"}
    block, _ = forwarded_headers(headers, b"x-session-id", credentials=True)
    assert block == b"authorization: Bearer k\r\nx-api-key: k\r\ncookie: a=b\r\nx-custom: kept\r\nx-session-id: s1\r\n"


FOREIGN = ["api-key", "x-goog-api-key", "ocp-apim-subscription-key", "x-litellm-api-key", "apikey", "x-openai-api-key", "x-amz-security-token",
    "x-forwarded-access-token", "x-auth-request-access-token", "x-forwarded-authorization", "x-vault-token", "x-portkey-virtual-key",
    "helicone-auth", "cf-access-jwt-assertion", "x-amzn-oidc-data", "x-functions-key", "x-client-secret", "x-password", "cookie2"]  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_credentials_for_other_gateways_reach_engines_only_where_the_pool_passes_them(name: str) -> None:
    headers = [(name.encode(), b"secret"), (b"x-kept", b"1")]
    assert forwarded_headers(headers, b"x-session-id")[0] == b"x-kept: 1\r\n"
    assert forwarded_headers(headers, b"x-session-id", credentials=True)[0] == f"{name}: secret\r\nx-kept: 1\r\n".encode()


@pytest.mark.parametrize("name", ["idempotency-key", "traceparent", "anthropic-beta", "x-stainless-lang", "x-author", "accept", "x-tokens"])
def test_headers_that_hold_no_credential_reach_engines(name: str) -> None:
    assert forwarded_headers([(name.encode(), b"1")], b"x-session-id")[0] == f"{name}: 1\r\n".encode()


@pytest.mark.parametrize(
    ("query", "passed"),
    [
        (b"", b""),
        (b"beta=true", b"?beta=true"),
        (b"stream=true&starting_after=5", b"?stream=true&starting_after=5"),
        (b"beta=true&key=AIza", b"?beta=true"),
        (b"api_key=sk-1", b""),
        (b"API%5FKEY=sk-1&x=api_key", b"?x=api_key"),
        (b"access_token=a&api-version=2&token", b"?api-version=2"),
    ],
)
def test_no_engine_gets_a_credential_that_a_client_wrote_into_the_query(query: bytes, passed: bytes) -> None:
    scope = {"query_string": query, "raw_path": b"/v1/messages", "method": "POST"}
    assert request_head(scope, b"", b"id", length=2).startswith(b"POST /v1/messages%b HTTP/1.1\r\n" % passed)


def test_a_request_id_that_names_peers_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"^x-request-id: "):
        forwarded_headers([(b"x-request-id", b"___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_1")], b"x-session-id")


@pytest.mark.parametrize("value", [b"sql-lora", b""])
def test_a_header_by_which_engines_would_serve_another_adapter_is_refused(value: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^x-amzn-sagemaker-adapter-identifier: .*name it there") as caught:
        forwarded_headers([(b"accept", b"*/*"), (b"x-amzn-sagemaker-adapter-identifier", value)], b"x-session-id")
    assert (caught.value.status, caught.value.code) == (400, "invalid_field")


def test_the_first_of_several_headers_that_name_a_session_counts() -> None:
    twice = [(b"x-session-id", b"first"), (b"x-session-id", b"second"), (b"thread-id", b"a"), (b"thread-id", b"b")]
    assert forwarded_headers(twice, b"x-session-id")[1] == {b"x-session-id": b"first", b"thread-id": b"a"}
    assert session_headers(twice, b"x-session-id") == {b"x-session-id": b"first", b"thread-id": b"a"}


class ComparedName(bytes):
    """A name that counts its comparisons with other names."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.comparisons += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def test_thousands_of_headers_and_of_names_in_connection_hold_up_nobody() -> None:
    named = b",".join(b"h%d" % number for number in range(10_000))
    headers = [(b"connection", named), *((ComparedName(b"x%d" % (number % 10)), b"") for number in range(4000)), (b"h9999", b"1")]
    block, _ = forwarded_headers(headers, b"x-session-id")
    assert 4000 <= ComparedName.comparisons < 50 * 4000, "each with few names, not with all that `connection` lists"
    assert b"h9999" not in block


def test_a_body_that_is_nested_too_deeply_is_told_so() -> None:
    for depth in (254, 500, 1000, 5000):
        with pytest.raises(BadRequest, match="nested too deeply; send it flatter"):
            parse_request(b'{"model": "m", "messages": ' + b"[" * depth + b"]" * depth + b"}", CHAT)
    parse_request(b'{"model": "m", "messages": ' + b"[" * 253 + b"]" * 253 + b"}", CHAT)


@pytest.mark.parametrize(
    ("opens", "closes"), [(b"[" * 300, b"]" * 300), (b'{"a":' * 300 + b"1", b"}" * 300), (b'{"a":[' * 150, b"]}" * 150)]
)
def test_deep_nesting_is_found_wherever_it_stands_in_a_body(opens: bytes, closes: bytes) -> None:
    for before in range(201):
        body = b'{"model": "m", "messages": [], "user": "%s", "metadata": %s%s}' % (b"x" * before, opens, closes)
        with pytest.raises(BadRequest, match="nested too deeply"):
            parse_request(body + b" " * 1000, CHAT)


@examples(300)
@given(
    st.sampled_from([b"]", b"}", b"]}", b"}]"]), st.integers(1, 260), st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 3)
)
def test_samples_find_each_row_of_brackets_that_a_search_finds(bracket: bytes, number: int, before: bytes, after: bytes, gap: int) -> None:
    body = before * gap + bracket * number + after
    assert requests._may_nest_deeply(body) == (max(map(body.find, requests._ROWS)) >= 0)


PEERS = ["kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_anything",
    "disaggregated_params", "migration_request", "nvext.decode_worker_id", "nvext.backend_instance_id", "vllm_xargs.kv_transfer_params",
    "extra_body.ec_transfer_params", "extra_body.vllm_xargs.bootstrap_host", "sampling_params.extra_args.kv_transfer_params"]  # fmt: skip


@pytest.mark.parametrize("path", PEERS)
@pytest.mark.parametrize("endpoint", [endpoint for endpoint in ENDPOINTS if endpoint.handling in (Handling.ROUTED, Handling.SPREAD)])
def test_what_points_an_engine_at_a_peer_is_refused_on_every_path_and_none_is_let_through(endpoint: Endpoint, path: str) -> None:
    prompt = {"messages": [], "input": "a", "prompt": "a"}

    def body(value: object) -> bytes:
        for name in reversed(path.split(".")):
            value = {name: value}
        return orjson.dumps({"model": "m", **prompt, **value})  # type: ignore[dict-item]

    with pytest.raises(BadRequest) as caught:
        parse_request(body({"remote_host": "10.0.0.1"}), endpoint)
    assert (caught.value.status, caught.value.param) == (400, path)
    parse_request(body(None), endpoint)


@pytest.mark.parametrize("field", ["request_id", "rid"])
def test_an_id_that_names_peers_is_refused(field: str) -> None:
    for value in ("___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_x", ["a", "x___decode_addr_10.0.0.2:80"]):
        with pytest.raises(BadRequest, match=rf"^{field}: "):
            parse_request(_chat(**{field: value}), CHAT)
    parse_request(_chat(**{field: "plain"}), CHAT)


def test_objects_within_objects_without_end_hold_up_nobody() -> None:
    deep = b'{"extra_body":' * 250 + b"1" + b"}" * 250
    parse_request(b'{"model":"m","messages":[],"extra_body":%b}' % deep, CHAT)


@pytest.mark.parametrize("field", ["model", "messages", "stream", "stream_options", "max_tokens"])
def test_a_value_that_is_nested_as_deep_as_json_may_be_is_a_400_like_any_other(field: str) -> None:
    deep = b"[" * 1000 + b"]" * 1000
    body = orjson.dumps({"model": "m", "messages": [{"content": "hello"}], field: "HERE"}).replace(b'"HERE"', b"[%b]" % deep)
    with pytest.raises(BadRequest) as problem:
        parse_request(body, CHAT)
    assert problem.value.status == 400


def test_a_refusal_writes_no_more_of_a_value_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model": "m", "messages": [], "stream": [' + b"1.5," * 100_000 + b"1]}"
    document = orjson.loads(body)
    monkeypatch.setattr("orjson.loads", lambda _: document)  # its own memory would hide what is written
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            parse_request(body, CHAT)
        assert tracemalloc.get_traced_memory()[1] < len(body) // 4
    finally:
        tracemalloc.stop()


BATCH = _endpoint(b"/v1/chat/completions/batch")
TURN = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/embeddings", "/score"])
def test_a_protocol_without_several_answers_has_one_whatever_its_body_says(path: str) -> None:
    document = {"model": "m", "messages": [], "input": "x", "prompt": ["x"] * 5, "n": 50, "best_of": 60, "max_tokens": 7}
    assert parse_request(orjson.dumps(document), _endpoint(path.encode())).answers == 1


@pytest.mark.parametrize(
    ("path", "document", "answers"),
    [
        (CHAT, {"messages": TURN}, 1),
        (CHAT, {"messages": TURN, "n": None}, 1),
        (CHAT, {"messages": TURN, "n": 1}, 1),
        (CHAT, {"messages": TURN, "n": 8}, 8),
        (CHAT, {"messages": TURN, "n": 8.0}, 8),
        (CHAT, {"messages": TURN, "n": "8"}, 8),
        (CHAT, {"messages": TURN, "n": -3}, 1),
        (CHAT, {"messages": TURN, "n": []}, 1),
        (COMPLETION, {"prompt": "once", "n": 2, "best_of": 5}, 5),
        (COMPLETION, {"prompt": "once", "n": 2, "best_of": 5, "stream": True}, 2),
        (COMPLETION, {"prompt": ["once", "twice"], "n": 3}, 6),
        (COMPLETION, {"prompt": [[1], [2], [3]]}, 3),
        (COMPLETION, {"prompt": [1, 2, 3]}, 1),
        (BATCH, {"messages": [TURN, TURN, TURN]}, 3),
        (BATCH, {"messages": [TURN, TURN], "n": 2}, 4),
        (COMPLETION, {"prompt": ["once"] * 3000, "n": 2**60}, 2**53),
    ],
)
def test_a_request_says_how_many_answers_it_asks_for(path: Endpoint, document: dict[str, Any], answers: int) -> None:
    parsed = parse_request(orjson.dumps({"model": "m", "max_tokens": 7, **document}), path)
    assert (parsed.answers, parsed.max_output_tokens) == (answers, 7)


FOREIGN_FIELDS: dict[str, tuple[object, ...]] = {
    "/v1/chat/completions": ("prompt", "input"),
    "/v1/completions": ("messages", "input", "input_ids", "max_completion_tokens"),
    "/v1/responses": ("n", "best_of", "messages", "prompt", "max_tokens", "max_completion_tokens", "stream_options"),
    "/v1/messages": ("n", "best_of", "prompt", "input", "max_completion_tokens", "max_output_tokens", "stream_options"),
    "/v1/embeddings": ("n", "best_of", "prompt", "stream", "max_tokens", "stream_options"),
}
"""Fields that engines' request models lack for one path and have for another."""
OWN: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}], "prompt": ["a", "b"], "input": "hi"}


@pytest.mark.parametrize(("path", "field"), [(path, field) for path, fields in FOREIGN_FIELDS.items() for field in fields])
@pytest.mark.parametrize("value", [["a", "b", "c"], [1, 2], [[1], [2]], 7, "7", {"include_usage": True}, [], True])
def test_a_field_of_another_protocol_changes_nothing_of_a_request(path: str, field: str, value: object) -> None:
    endpoint = find(path.encode())
    assert endpoint is not None
    own = {"/v1/completions": "prompt", "/v1/responses": "input", "/v1/embeddings": "input"}.get(path, "messages")
    document = {"model": "m", own: OWN[own], "max_tokens" if field != "max_tokens" else "user": 9}
    plain, with_it = (ParsedRequest(b"{}", one, endpoint) for one in (document, {**document, field: value}))
    told = [(one.answers, one.max_output_tokens, one.stream, one.include_usage, one.prompt) for one in (plain, with_it)]
    assert told[0] == told[1]
    assert prompt_size(endpoint, with_it.document, with_it.prompt) == prompt_size(endpoint, document, plain.prompt)


def test_only_a_completion_has_an_answer_for_each_of_its_prompts() -> None:
    body = {"model": "m", "messages": [], "prompt": ["a", "b"], "n": 2}
    paths = {b"/v1/chat/completions": 2, b"/v1/completions": 4, b"/invocations": 2}
    found = {path: parse_request(orjson.dumps(body), endpoint).answers for path in paths if (endpoint := find(path)) is not None}
    assert found == paths
    del body["messages"]
    invocation = find(b"/invocations")
    assert invocation is not None
    assert parse_request(orjson.dumps(body), invocation).answers == 4
