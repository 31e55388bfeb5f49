"""Reads the relations of a request's session to other sessions: its parent, task, tool and compactions.

`PARENTS` and `TASKS` list the fields and headers that have this information, in order of precedence; docs/agents.md has
the same lists for users. Names are shortened and hashed like session names, so that the name of a parent equals the
parent's own session name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fairlead.session_trees import Lineage

Document = Mapping[str, Any]
Headers = Mapping[bytes, bytes]
Named = Callable[[str], str]

PARENT_HEADER, TASK_HEADER = b"x-fairlead-parent", b"x-fairlead-task"
_SESSION, _AGENT, _ASKING = b"x-claude-code-session-id", b"x-claude-code-agent-id", b"x-claude-code-parent-agent-id"
_THREAD, _ASKING_THREAD, _FIRST_THREAD = b"thread-id", b"x-codex-parent-thread-id", b"session-id"
_WINDOW = b"x-codex-window-id"

LINEAGE_HEADERS = frozenset({PARENT_HEADER, TASK_HEADER, _ASKING, _ASKING_THREAD, b"x-parent-session-id", _WINDOW})
"""Headers about a session's relations. They do not name the session itself."""

LONGEST_TOOL = 100
"""Maximum number of characters of a tool's name that are kept."""
_LOOKED_AT = 64
"""Maximum number of items, from the end of the prompt, that are searched for the tool."""
_MOST_DIGITS = 6


class Place(NamedTuple):
    """A field or header of a request that has information about its session's relations. `names`: its names. `who`: the
    clients that send it. `read`: returns its value, or None.
    """

    names: tuple[str, ...]
    who: str
    read: Callable[[Headers, Document], bytes | str | None]


def _claude_codes_parent(headers: Headers, _document: Document) -> bytes | None:
    session = headers.get(_SESSION, b"").strip()
    if not session or not headers.get(_AGENT, b"").strip():
        return None
    asking = headers.get(_ASKING)
    return session + b":" + asking if asking else session


def _codex_first_thread(headers: Headers, _document: Document) -> bytes | None:
    return headers.get(_FIRST_THREAD) if headers.get(_THREAD) else None


def _root_turn(_headers: Headers, document: Document) -> str | None:
    facts = document.get("client_metadata")
    turn = facts.get("root_turn_id") if isinstance(facts, dict) else None
    return turn if isinstance(turn, str) else None


def _header(name: bytes, who: str) -> Place:
    return Place((name.decode(),), who, lambda headers, _: headers.get(name))


PARENTS = (
    _header(PARENT_HEADER, "you: the name of the session that this one came from"),
    Place((_AGENT.decode(), _ASKING.decode()), "Claude Code's sub-agents", _claude_codes_parent),
    _header(_ASKING_THREAD, "Codex's sub-agents"),
    Place((_THREAD.decode(), _FIRST_THREAD.decode()), "Codex's sub-agents, if the two headers differ", _codex_first_thread),
    _header(b"x-parent-session-id", "OpenCode's sub-agents"),
)
TASKS = (
    _header(TASK_HEADER, "you: any name"),
    Place(("client_metadata.root_turn_id",), "Codex: the user's message that the turn works on", _root_turn),
)

_NAMES_PARENTS = frozenset(name.encode() for place in PARENTS for name in place.names)


def lineage(headers: Headers | None, document: Document, named: Named, own: str | None) -> Lineage | None:
    """Return the relations of the request's session; None if the request has no information about them.

    `headers`: the headers that may name a session or its relations. `named`: a function that makes a name safe to
    store. `own`: the session's own name, which is never accepted as the name of its parent.
    """
    known = headers or {}
    parent = None if _NAMES_PARENTS.isdisjoint(known) else _first(PARENTS, known, document, named, own)
    task = _first(TASKS, known, document, named, None) if TASK_HEADER in known or "client_metadata" in document else None
    window = _window(known[_WINDOW]) if _WINDOW in known else None
    tool = newest_tool(document)
    if parent is None and task is None and tool is None and window is None:
        return None
    return Lineage(parent=parent, task=task, tool=tool, window=window)


def _first(places: tuple[Place, ...], headers: Headers, document: Document, named: Named, own: str | None) -> str | None:
    for place in places:
        found = place.read(headers, document)
        name = named(found.decode("latin-1") if isinstance(found, bytes) else found) if found else ""
        if name and name != own:
            return name
    return None


def _window(value: bytes) -> int | None:
    """Return the number that follows the thread's name in Codex's window id; None if there is none."""
    number = value.rpartition(b":")[2].strip()
    return int(number) if number.isdigit() and len(number) <= _MOST_DIGITS else None


def newest_tool(document: Document) -> str | None:
    """Return the name of the last called tool, if the prompt ends with the tool's result; None otherwise. Also None if
    the call is not among the last items of the prompt, because only these are read.
    """
    items = document.get("messages") or document.get("input")
    if not isinstance(items, list) or not items or not _is_result(items[-1]):
        return None
    for item in reversed(items[-_LOOKED_AT:]):
        for name in _calls(item):
            return name[:LONGEST_TOOL] if name.isprintable() else None
    return None


def _is_result(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    if item.get("role") == "tool" or _is_output(item.get("type")):
        return True
    parts = item.get("content")
    return item.get("role") == "user" and isinstance(parts, list) and any(_is_tool_result(part) for part in parts)


def _is_output(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith("_call_output")


def _is_tool_result(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _calls(item: object) -> Iterator[str]:
    """Yield the names of the tools that an item of the prompt calls, from the last call to the first."""
    if not isinstance(item, dict):
        return
    if item.get("type") in ("function_call", "custom_tool_call"):
        yield from _name(item)
    for field, inner in (("tool_calls", "function"), ("content", None)):
        parts = item.get(field)
        for part in reversed(parts) if isinstance(parts, list) else ():
            if isinstance(part, dict) and (inner is not None or part.get("type") == "tool_use"):
                yield from _name(part.get(inner) if inner is not None else part)


def _name(call: object) -> Iterator[str]:
    name = call.get("name") if isinstance(call, dict) else None
    if isinstance(name, str) and name:
        yield name
