"""Every turn of a recording continues the turn before, as tests of sessions need it, and no private data is left."""

import json
import re

import pytest

from fairlead_testing.builders.recorded_clients import RecordedClient, RecordedRequest, recorded_clients

CONVERSATIONS = [client for client in recorded_clients() if client.name != "claude-code-subagent"]
PATHS = {"/v1/chat/completions", "/v1/messages", "/v1/responses"}


def said(request: RecordedRequest) -> list[str]:
    """Return the conversation's items, without cache marks, which move, and with a single text equal to a list of
    one.
    """
    made: list[str] = []
    for item in request.body.get("messages") or request.body["input"]:
        text = re.sub(r', "cache_control": \{[^}]*\}', "", json.dumps(item))
        made.append(re.sub(r'"content": \[\{"type": "text", "text": ("(?:[^"\\]|\\.)*")\}\]', r'"content": \1', text))
    return made


def test_all_protocols_are_recorded_with_tools() -> None:
    clients = recorded_clients()
    assert {request.route for client in clients for request in client.requests} == PATHS
    assert all(len(client.turns) == 4 for client in clients) and len(clients) == 10


@pytest.mark.parametrize("client", CONVERSATIONS, ids=lambda client: client.name)
def test_every_turn_goes_on_from_the_one_before(client: RecordedClient) -> None:
    for before, after in zip(client.turns, client.turns[1:], strict=False):
        assert said(after)[: len(said(before))] == said(before) and len(said(after)) > len(said(before))
        assert after.body["tools"] == before.body["tools"]


@pytest.mark.parametrize("client", recorded_clients(), ids=lambda client: client.name)
def test_a_recording_has_no_key_and_says_what_it_is_of(client: RecordedClient) -> None:
    assert client.client and client.version and re.fullmatch(r"20\d\d-\d\d-\d\d", client.recorded)
    for request in client.requests:
        assert not {"authorization", "x-api-key"} & set(request.headers)
        assert not re.search(r"\bsk-", json.dumps(dict(request.body)))
