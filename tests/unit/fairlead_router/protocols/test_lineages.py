"""The place of a session that a request gives, in recorded clients' requests and the documented headers."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.session_trees import Lineage
from fairlead_router.protocols.lineages import LONGEST_TOOL, PARENTS, TASKS, lineage, newest_tool
from fairlead_router.protocols.requests import forwarded_headers
from fairlead_router.protocols.session_names import LONGEST_NAME, session_name, session_names
from fairlead_testing.builders.recorded_clients import RecordedRequest, recorded_clients

POOL_HEADER = b"x-session-id"
CLAUDE = "00000001-0000-4000-8000-000000000001"
DOCS = (Path(__file__).parents[4] / "docs" / "agents.md").read_text()


def said(headers: dict[str, str], body: dict[str, Any] | None = None) -> Lineage:
    """Return the lineage that such a request gives, with its headers read as the router reads them."""
    sent = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    naming, document = forwarded_headers(sent, POOL_HEADER)[1], body or {}
    names = session_names(naming, POOL_HEADER, document, None)
    return lineage(naming, document, session_name, names[0] if names else None) or Lineage()


def of(client: str) -> tuple[RecordedRequest, ...]:
    return next(one.requests for one in recorded_clients() if one.name == client)


def recorded(client: str) -> list[Lineage]:
    return [said(dict(request.headers), dict(request.body)) for request in of(client)]


def test_claude_codes_sub_agent_has_the_session_as_parent_and_each_turn_its_tool() -> None:
    main, asked, after_tool, back = recorded("claude-code-subagent")
    assert (main.parent, main.tool) == (None, None)
    assert (asked.parent, asked.tool) == (CLAUDE, None)
    assert (after_tool.parent, after_tool.tool) == (CLAUDE, "Bash")
    assert (back.parent, back.tool) == (None, "Agent"), "it waited for its sub-agent"


def test_codex_says_which_message_a_turn_works_on_and_how_often_its_context_was_compacted() -> None:
    turns = recorded("codex")
    assert [turn.tool for turn in turns] == [None, "exec_command", None, "exec_command"]
    assert {turn.parent for turn in turns} == {None}
    assert {turn.window for turn in turns} == {0}
    first, second, third, fourth = (turn.task for turn in turns)
    assert first == second != third == fourth


def test_opencode_names_its_tools_and_its_sub_agents_their_parent() -> None:
    assert [turn.tool for turn in recorded("opencode")] == [None, None, "bash", None, "bash"]
    assert said({"x-session-id": "ses_b", "x-parent-session-id": "ses_a"}).parent == "ses_a"


def test_a_nested_sub_agent_of_claude_code_has_the_one_that_asked_it_as_parent() -> None:
    nested = {"x-claude-code-session-id": CLAUDE, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    assert said(nested).parent == f"{CLAUDE}:a1"
    assert said({"x-claude-code-session-id": CLAUDE, "x-claude-code-agent-id": "a1"}).parent == CLAUDE
    assert said({"x-claude-code-agent-id": "a1"}).parent is None, "an agent of no session"


def test_a_thread_of_codex_has_the_thread_that_asked_it_as_parent_or_else_the_first_one() -> None:
    assert said({"thread-id": "t2", "session-id": "t1", "x-codex-parent-thread-id": "t3"}).parent == "t3"
    assert said({"thread-id": "t2", "session-id": "t1"}).parent == "t1"
    assert said({"thread-id": "t1", "session-id": "t1"}).parent is None


def test_fairleads_own_headers_come_first_and_do_not_reach_an_engine() -> None:
    headers = {"x-session-id": "b", "x-parent-session-id": "a", "x-fairlead-parent": "mine", "x-fairlead-task": "build 7"}
    assert said(headers) == Lineage(parent="mine", task="build 7")
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert b"x-fairlead" not in forwarded_headers(sent, POOL_HEADER)[0]


@pytest.mark.parametrize("bad", ["", "  ", "b", "\x00", "sk-secret-0123456789", "x" * 50_000])
def test_no_parent_or_task_is_refused_and_none_is_stored_as_it_is_if_it_is_long_or_secret(bad: str) -> None:
    found = said({"x-session-id": "b", "x-fairlead-parent": bad, "x-fairlead-task": bad})
    assert found.parent is None or (found.parent.startswith("hashed-") and len(found.parent) <= LONGEST_NAME)
    assert found.task is None or len(found.task) <= LONGEST_NAME
    assert "secret" not in f"{found.parent} {found.task}"


@pytest.mark.parametrize("window", ["", "t", "t:", "t:x", "t:-1", "t:²", "t:99999999999999999999"])
def test_a_window_that_is_no_small_number_says_nothing(window: str) -> None:
    assert said({"x-session-id": "b", "x-codex-window-id": window}).window is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["tool", "user", "tool_use", "function_call", "tool_result", "n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "type", "content", "tool_calls", "function", "name", "input"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_a_tool_is_read_from_any_document(messages: object, metadata: object) -> None:
    found = newest_tool({"messages": messages})
    assert found is None or len(found) <= LONGEST_TOOL
    assert isinstance(said({"x-session-id": "b"}, {"input": messages, "client_metadata": metadata}), Lineage)


def test_only_the_newest_items_of_a_prompt_are_read_for_its_tool() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "far"}}]}
    result = {"role": "tool", "content": "x"}
    assert newest_tool({"messages": [call, result]}) == "far"
    assert newest_tool({"messages": [call, *[result] * 100]}) is None


def test_the_places_are_those_in_the_docs() -> None:
    section = DOCS[DOCS.index("| Says") :].split("\n\n")[0]
    written = {
        (cells[1].strip(), place)
        for cells in (line.split("|") for line in section.splitlines() if line.startswith("| "))
        for place in re.findall(r"`([^`]+)`", cells[2])
    }
    ours = {("parent", name) for place in PARENTS for name in place.names} | {("task", name) for place in TASKS for name in place.names}
    assert written == ours | {("compactions", "x-codex-window-id")}
