"""Which of a request's names becomes the name of its session."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.requests import forwarded_headers
from fairlead_router.protocols.session_names import (
    LONGEST_NAME,
    MOST_NAMES,
    POOL_HEADER_PLACE,
    SOURCES,
    Source,
    beginning,
    session_name,
    session_names,
)
from fairlead_testing.builders.recorded_clients import RecordedRequest, recorded_clients

POOL_HEADER = b"x-chat"
CLAUDE = "0d5b3f0e-1d6c-4c0e-9a59-2d9b1f6a7c11"
DOCS = (Path(__file__).parents[4] / "docs" / "gateway.md").read_text()


def asked(*places: tuple[Source, str]) -> tuple[str, ...]:
    """Return the names of a request that has these values in these places."""
    headers: list[tuple[bytes, bytes]] = []
    document: dict[str, Any] = {"model": "m", "messages": []}
    previous: str | None = None
    for source, value in places:
        if source.is_header:
            name = POOL_HEADER if source.place == POOL_HEADER_PLACE else source.place.encode()
            headers.append((name, value.encode()))
        elif source.place == "previous_response_id":
            document["previous_response_id"], previous = "resp_1", value
        else:
            within = document
            *path, last = source.place.split(".")
            for part in path:
                within = within.setdefault(part, {})
            within[last] = json.dumps({"device_id": "d", "session_id": value}) if source.embedded else value
    return session_names(forwarded_headers(headers, POOL_HEADER)[1], POOL_HEADER, document, previous)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.place)
def test_a_name_in_any_place_of_the_table_is_the_session(source: Source) -> None:
    assert asked((source, CLAUDE)) == (CLAUDE,)


@pytest.mark.parametrize(("one", "other"), [pair for pair in itertools.pairwise(SOURCES) if pair[0].place != pair[1].place])
def test_of_two_places_the_one_that_is_higher_in_the_table_counts_and_the_other_follows(one: Source, other: Source) -> None:
    assert asked((other, "second"), (one, "first")) == ("first", "second")


@given(st.sets(st.integers(0, len(SOURCES) - 2), min_size=1))
def test_whatever_places_have_names_they_come_in_the_order_of_the_table(places: set[int]) -> None:
    order = sorted(places)
    assert asked(*((SOURCES[place], f"n{place}") for place in reversed(order))) == tuple(f"n{place}" for place in order)[:MOST_NAMES]


def test_the_table_is_the_one_in_the_docs() -> None:
    section = DOCS[DOCS.index("**Which session.**") :]
    written = [place for line in section.splitlines() if line.startswith("| ") for place in re.findall(r"`([^`]+)`", line.split("|")[2])]
    ours = [name for source in SOURCES for name in (source.place, source.within) if name]
    ours[ours.index(POOL_HEADER_PLACE)] = "spec.routing.session.header"
    assert written[: len(ours)] == ours


def test_sub_agents_of_claude_code_are_sessions_of_their_own() -> None:
    def names(*agent: str) -> tuple[str, ...]:
        headers = {b"x-claude-code-session-id": CLAUDE.encode(), **({b"x-claude-code-agent-id": agent[0].encode()} if agent else {})}
        user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": CLAUDE})
        return session_names(headers, b"x-session-id", {"metadata": {"user_id": user}}, None)

    assert names() == (CLAUDE,)
    assert names("a1") == (f"{CLAUDE}:a1", CLAUDE)
    assert names("a2")[0] != names("a1")[0]
    assert session_names({b"x-claude-code-agent-id": b"a1"}, b"x-session-id", {}, None) == (), "an agent of no session"


@pytest.mark.parametrize("user", [f"user_{'0a' * 32}_account__session_{CLAUDE}", f"user_{'0a' * 32}_account_{CLAUDE[:8]}_session_{CLAUDE}"])
def test_the_session_within_a_user_id_of_older_claude_code_counts_and_not_the_user(user: str) -> None:
    names = session_names(None, b"x-session-id", {"metadata": {"user_id": user}}, None)
    assert names == (CLAUDE,)


@pytest.mark.parametrize("bad", [None, 7, 1.5, True, [], ["s"], {}, {"id": 1}, "", " ", "\t\n"])
@pytest.mark.parametrize("source", [source for source in SOURCES if not source.is_header], ids=lambda source: source.place)
def test_a_value_that_is_no_name_falls_back_to_the_next_place_and_refuses_nothing(source: Source, bad: object) -> None:
    document: dict[str, Any] = {source.place.split(".")[0]: {source.place.split(".")[-1]: bad} if "." in source.place else bad}
    last = "user" if source.place.partition(".")[0] == "metadata" else "metadata"
    document[last] = "someone" if last == "user" else {"user_id": "someone"}
    if source.place != "user":
        assert session_names({}, b"x-session-id", document, None)[-1] == "someone"
    else:
        assert session_names({}, b"x-session-id", document, None) == ("someone",)


@pytest.mark.parametrize("user", ['{"session_id": 7}', '{"session_id": ""}', "{no json", "[1]", '{"a": 1}', "user_session_", "{}"])
def test_a_user_id_without_a_session_names_the_user_and_nothing_personal_is_shown(user: str) -> None:
    (name,) = session_names({}, b"x-session-id", {"metadata": {"user_id": user}}, None)
    assert name == (f"{name}" if user.startswith("{") else user)
    assert not user.startswith("{") or name.startswith("hashed-")


def test_a_conversation_is_an_id_or_an_object_with_one() -> None:
    assert session_names({}, b"x", {"conversation": "conv_1"}, None) == ("conv_1",)
    assert session_names({}, b"x", {"conversation": {"id": "conv_1"}}, None) == ("conv_1",)


def test_a_request_that_goes_on_from_a_response_has_that_ones_session() -> None:
    document = {"input": "hi", "previous_response_id": "resp_2", "user": "u"}
    assert session_names({}, b"x", document, "resp_1") == ("resp_1", "u")
    assert session_names({}, b"x", document, None) == ("u",)


@pytest.mark.parametrize(
    "secret", ["sk-proj-0123456789", "Bearer abc.def", "hf_0123456789", "ghp_0123456789", "eyJhbGciOi.J9.x", "AKIA0123456789"]
)
def test_what_looks_like_a_credential_is_stored_as_its_hash(secret: str) -> None:
    assert session_name(secret).startswith("hashed-")
    assert session_name(secret) == session_name(secret) != session_name(secret + "0")


@given(st.text(max_size=400))
def test_session_names_are_printable_short_and_distinct(raw: str) -> None:
    name = session_name(raw)
    assert name.isprintable()
    assert len(name) <= LONGEST_NAME
    assert name == raw.strip() or name.startswith("hashed-")
    assert session_name(raw + "x") != name


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["id", "session_id", "user_id", "role", "content", "text"]), inner, max_size=3), max_leaves=12), st.sampled_from(
    ["conversation", "session_params", "metadata", "client_metadata", "vllm_xargs", "messages", "input", "user"]))  # fmt: skip
def test_no_value_of_any_field_raises(value: object, field: str) -> None:
    session_names({b"x-session-id": b"\xff\x00"}, b"x-session-id", {field: value}, None)
    beginning({field: value}, 7)


EXPECTED = {"claude-code", "claude-code-subagent", "claude-agent-sdk", "codex", "opencode"}


def names_of(request: RecordedRequest) -> tuple[str, ...]:
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    return session_names(forwarded_headers(headers, b"x-session-id")[1], b"x-session-id", dict(request.body), None)


def test_recorded_agents_have_one_session_in_all_turns_and_sdks_have_none() -> None:
    for client in recorded_clients():
        sessions = {names_of(request)[:1] for request in client.requests}
        if client.name == "claude-code-subagent":
            assert len(sessions) == 2
        elif client.name in EXPECTED:
            assert len(sessions) == 1 and () not in sessions, client.name
        else:
            assert sessions == {()}


def test_every_turn_of_a_recorded_conversation_begins_alike_and_a_sub_agents_does_not() -> None:
    begun: dict[str, set[int]] = {}
    for client in recorded_clients():
        turns = [request for request in client.turns if "x-claude-code-agent-id" not in request.headers]
        begun[client.name] = {beginning(dict(request.body), 0) for request in turns}
        others = {beginning(dict(request.body), 0) for request in client.turns if request not in turns}
        assert not begun[client.name] & others
    assert all(len(found) == 1 and 0 not in found for found in begun.values()), begun


def test_the_same_question_in_any_protocol_begins_alike_whatever_the_system_text() -> None:
    chat = {"messages": [{"role": "system", "content": "today"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]}
    messages = {"system": "tomorrow", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]}]}
    responses = {"input": [{"role": "developer", "content": "d"}, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}
    assert len({beginning(one, 3) for one in (chat, messages, responses, {"input": "hi"})}) == 1
    assert beginning({"input": "hi"}, 3) != beginning({"input": "hi"}, 4) != beginning({"input": "ho"}, 4)
    assert beginning({"prompt": "hi"}, 3) == beginning({"input": "hi", "previous_response_id": "r"}, 3) == 0


TENANTS = ("", "1f2e3d4c5b6a7988", "8897a6b5c4d3e2f1")


@given(
    st.lists(st.tuples(st.sampled_from(["chat-1", "a@b.example", "{}", "sk-1", "ü" * 300]), st.sampled_from(TENANTS)), max_size=3),
    st.sampled_from(TENANTS),
    st.sampled_from(TENANTS),
)
def test_no_tenant_can_name_the_session_of_another(parts: list[tuple[str, str]], one: str, other: str) -> None:
    raw = "chat-1" + "".join(f"@{tenant or word}" for word, tenant in parts)
    mine = session_name(raw, one)
    assert session_name(mine, one) == mine, "the session of a stored response is the tenant's own"
    if one != other:
        assert mine != session_name(raw, other)
        assert session_name(mine, other) != mine, "also if the tenant read the other's identity somewhere"


def test_a_session_is_shown_by_the_name_that_its_client_sends_and_the_tenant() -> None:
    tenant = TENANTS[1]
    assert session_name("chat-1") == "chat-1"
    assert session_name("chat-1", tenant) == f"chat-1@{tenant}"
    assert session_names({POOL_HEADER: b"a"}, POOL_HEADER, {"user": "u"}, None, tenant) == (f"a@{tenant}", f"u@{tenant}")
    assert session_name(f"chat-1@{tenant}").startswith("hashed-"), "nobody without a key sends a tenant's session"
    assert session_name("somebody@example.com") == "somebody@example.com"
