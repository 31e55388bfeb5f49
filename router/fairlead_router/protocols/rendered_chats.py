"""Converts a chat to the bytes that routing compares: everything that an engine's template renders, in the order of
templates, and nothing else.

No template is applied, because routing needs only one property: the common beginning of two prompts' bytes must end
where the common beginning of their tokens ends. So the order is the order of the templates of Qwen, Llama and Hermes,
which put tools before the system text:

    template arguments, tools, documents, system text and messages; each message: thoughts, content, tool calls

These parts are separated by marks, whose first byte does not occur in UTF-8. So no text can contain a mark, and
different chats have different bytes. The bytes of a continued chat begin with all bytes of the earlier chat. Ids of
tool calls have no bytes, because most templates do not render them (Mistral's and Kimi K2's do), and because they never
change within a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from xxhash import xxh3_128_digest

from fairlead_router.protocols.canonical_json import NestsTooDeeply, canonical_json
from fairlead_router.protocols.conversations import without_billing
from fairlead_router.protocols.media import medium

Chat = Mapping[str, Any]

TOOLS, MEDIA = 1, 2
"""Flags of a chat's contents besides plain text. The bytes per token are measured separately for each combination
(`gateway.routed_requests`).
"""

_NEXT_PART = b"\xfd"
"""The mark between two parts of a message's content."""

MOST_MEDIA_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes that stand for the media of one prompt, which is a million tokens. The limit is needed
because a few bytes of a body can refer to a video with very many tokens.
"""


class Pieces(list[bytes]):
    """Collects the bytes of a prompt, piece by piece."""

    _media_left = MOST_MEDIA_BYTES

    def stand_in(self, part: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the modality of a medium, and the bytes that stand for it. If the media of the prompt have used up
        MOST_MEDIA_BYTES, the bytes are only the hash.
        """
        modality, found = medium(part, self._media_left)
        self._media_left = max(0, self._media_left - len(found))
        return modality, found


def mark(word: str) -> bytes:
    """Return the mark at the beginning of a part of a chat. `word` is a role or the type of the part."""
    return b"\xff%s\xfe" % word.encode()


_PLAIN = {role: mark(role) for role in ("user", "assistant", "tool")}
_SYSTEM = frozenset({"system", "developer"})
_ARGUMENTS, _DECLARED, _CHOICE, _DOCUMENTS = mark("arguments"), mark("tools"), mark("choice"), mark("documents")
_THOUGHT, _CALL, _FIELD, _REFERENCE, _UNKNOWN = mark("thought"), mark("call"), mark("field"), mark("reference"), mark("item")
_MODALITIES = {modality: mark(modality) for modality in ("image", "audio", "video", "file")}
_NO_GENERATION, _CONTINUED = mark("end"), mark("continued")

_TEMPLATE_ARGUMENTS = ("chat_template_kwargs", "reasoning_effort", "thinking", "task")
_BEFORE = frozenset({*_TEMPLATE_ARGUMENTS, "tools", "documents"})
_AFTER = frozenset({"add_generation_prompt", "continue_final_message"})

_FIELDS = frozenset({"name", "task", "tools"})
"""Fields of a message that templates get in addition to its content. A tool's message needs none of them, because the
tool call has the tool's name.
"""

_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
"""Types of content parts that are text, each with the name of its text field."""


def render_chat(chat: Chat, messages: list[Any], into: Pieces, *, generates: bool = True) -> int:
    """Append the bytes of a chat to `into`. Return the flags of the chat's contents besides plain text: `TOOLS`,
    `MEDIA`, both or 0. `generates`: the default value of `add_generation_prompt`.
    """
    kinds = 0 if _BEFORE.isdisjoint(chat) else _render_before(chat, into)
    plain = _PLAIN
    for message in messages:
        if not isinstance(message, dict):
            continue
        role, content = message.get("role"), message.get("content")
        if isinstance(content, str) and isinstance(role, str) and (len(message) == 2 or role == "tool"):
            begin = plain.get(role)
            if begin is not None:
                into += (begin, content.encode())
            else:
                into += (mark(role), (settled(content) if role in _SYSTEM else content).encode())
        else:
            kinds |= _render_message(message, role, content, into)
    if not _AFTER.isdisjoint(chat):
        if bool(chat.get("add_generation_prompt", generates)) != generates:
            into.append(_NO_GENERATION)
        if chat.get("continue_final_message"):
            into.append(_CONTINUED)
    return kinds


def _render_before(chat: Chat, into: Pieces) -> int:
    """Append everything that is rendered before the messages to `into`. Return the flags of its contents besides plain
    text.
    """
    arguments = {field: value for field in _TEMPLATE_ARGUMENTS if (value := chat.get(field))}
    if arguments:
        into += (_ARGUMENTS, canonical_json(arguments))
    kinds = 0
    tools = chat.get("tools")
    if isinstance(tools, list) and tools:
        kinds = TOOLS
        into += (_DECLARED, _declarations(tools))
        # Without tools, or with one, SGLang renders a chat that chooses so; vLLM can be told to leave them out.
        choice = chat.get("tool_choice")
        if choice == "none" or isinstance(choice, dict):
            into += (_CHOICE, canonical_json(choice))
    if documents := chat.get("documents"):
        kinds = TOOLS
        into += (_DOCUMENTS, canonical_json(documents))
    return kinds


def _declarations(tools: list[Any]) -> bytes:
    """Return the declarations of tools as templates get them. The results are cached by the hash of the client's tools,
    because agents send tens of kB of the same tools with every request.
    """
    given = canonical_json(tools)
    digest = xxh3_128_digest(given)
    known = _declarations_known.pop(digest, None)
    if known is None:
        known = canonical_json([_declared(tool) for tool in tools])
    if len(known) <= _LARGEST_REMEMBERED:
        _declarations_known[digest] = known
        if len(_declarations_known) > _MOST_REMEMBERED:
            del _declarations_known[next(iter(_declarations_known))]
    return known


_MOST_REMEMBERED, _LARGEST_REMEMBERED = 64, 256 * 1024
_declarations_known: dict[bytes, bytes] = {}
"""The cached declarations by hash. The most recently used one comes last."""


def _declared(tool: object) -> object:
    """Return the part of a tool's declaration that a template gets. `tool` has the form of a chat or of Anthropic's
    protocol. The fields are in the engine's order; a schema keeps its own order.
    """
    if not isinstance(tool, dict):
        return tool
    function = tool.get("function")
    if not isinstance(function, dict):
        function = tool
    parameters = function.get("parameters")
    if parameters is None and isinstance(schema := function.get("input_schema"), dict):
        parameters = schema if "type" in schema else {**schema, "type": "object"}
    declared = [function.get("name"), function.get("description"), parameters]
    strict, deferred = function.get("strict"), function.get("defer_loading", tool.get("defer_loading"))
    if strict is not None or deferred is not None:
        declared += (strict, deferred)
    return declared


def _render_message(message: Chat, role: object, content: object, into: Pieces) -> int:
    kinds = 0
    if isinstance(role, str):
        into.append(_PLAIN.get(role) or mark(role))
    elif content is None and message.get("type"):
        into += (_UNKNOWN, canonical_json(_lasting(message)))  # an item of a response that only the engine knows
        return TOOLS
    if "reasoning" in message or "reasoning_content" in message:
        kinds = _render_thought(message, into)
    if role != "tool" and not _FIELDS.isdisjoint(message):
        into += [piece for field in sorted(_FIELDS) if (value := message.get(field)) for piece in (_FIELD, canonical_json([field, value]))]
    is_system = role in _SYSTEM
    if isinstance(content, str):
        into.append((settled(content) if is_system else content).encode())
    elif isinstance(content, list):
        kinds |= _render_parts(content, into, b"\n" if role == "tool" else _NEXT_PART, is_system=is_system)
    if "tool_calls" in message:
        kinds |= _render_calls(message, into)
    return kinds


def _render_thought(message: Chat, into: Pieces) -> int:
    thought = message.get("reasoning")
    if thought is None:
        thought = message.get("reasoning_content")
    if not isinstance(thought, str) or not thought:
        return 0
    into += (_THOUGHT, thought.encode(), _NEXT_PART)
    return TOOLS


def _render_parts(parts: list[Any], into: Pieces, between: bytes, *, is_system: bool) -> int:
    kinds = 0
    begin = b""
    for part in parts:
        piece, kind = _part(part, into, is_system=is_system)
        if piece is not None:
            kinds |= kind
            into += (begin, piece)
            begin = between
    return kinds


def _part(part: object, into: Pieces, *, is_system: bool) -> tuple[bytes | None, int]:
    """Return the bytes of one content part (a text or an object), and the flags of its contents besides plain text. The
    bytes are None if the part adds none.
    """
    if isinstance(part, str):
        text: object = part
    elif isinstance(part, dict):
        kind = part.get("type")
        field = _TEXT_FIELDS.get(kind) if isinstance(kind, str) else "text" if "text" in part else None
        if field is None:
            return _other_part(part, kind, into)
        text = part.get(field)
    else:
        return None, 0
    if not isinstance(text, str):
        return None, 0
    if is_system:
        text = settled(text)
        return text.encode() or None, 0
    return text.encode(), 0


def _other_part(part: Mapping[str, Any], kind: object, into: Pieces) -> tuple[bytes | None, int]:
    if kind == "tool_reference":
        return _REFERENCE + str(part.get("name") or part.get("tool_name")).encode(), TOOLS
    if not part or (len(part) == 1 and kind is not None):
        return None, 0
    modality, stand_in = into.stand_in(part)
    return _MODALITIES[modality] + stand_in, MEDIA


def _render_calls(message: Chat, into: Pieces) -> int:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return 0
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            shown = _parsed(arguments) if isinstance(arguments, str) else canonical_json(arguments or {})
            into += (_CALL, str(function.get("name")).encode(), _NEXT_PART, shown)
    return TOOLS


def _parsed(arguments: str) -> bytes:
    """Return the arguments of a tool call as templates get them: decoded and encoded again, so that the formatting of
    the JSON does not matter.
    """
    return _short(arguments) if len(arguments) <= _SHORT else _object(arguments)


_SHORT = 2048


def _object(arguments: str) -> bytes:
    try:
        decoded = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return b"{}"  # so engines take it
    if not isinstance(decoded, dict):
        return b"{}"
    try:
        return canonical_json(decoded)
    except NestsTooDeeply:
        return arguments.encode()


_short = lru_cache(maxsize=4096)(_object)
"""Caches the results of `_object` for short arguments, because a conversation sends its tool calls again with each
turn.
"""

_PASSING = frozenset({"id", "status", "cache_control"})


def _lasting(item: Chat) -> Chat:
    return {field: value for field, value in item.items() if field not in _PASSING}


def settled(text: str) -> str:
    """Return a system text without the parts that clients change with every request. These are an attribution line at
    the beginning, and the numbers in dates, times and remaining budgets in the last lines.
    """
    text = without_billing(text)
    tail = text[-_TAIL:]
    still = _still(tail)
    return text if still is tail else text[:-_TAIL] + still


_TAIL = 240
_MOST_MOVING = 4
"""Maximum number of lines at the end of a text that are checked for changing numbers."""
_CLOSING = re.compile(r"</[\w:.-]{1,60}>\s*")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_WHEN = re.compile(
    rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}:\d{{2}}|\d{{10,13}}|{_MONTH} \d{{1,2}}|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}",
    re.I,
)
_NAMES_WHEN = re.compile(r"\b(?:current|today|now|date|datetime|time|timestamp)\b", re.I)
_NAMES_REST = re.compile(r"(?:\b|_)(?:remaining|left|budget|usage|used)\b", re.I)
_NAMES_UNIT = re.compile(r"\b(?:tokens?|context|credits?)(?:\b|_)|[%$]", re.I)
_NUMBER = re.compile(r"\d")
_FIGURES = re.compile(rf"\b{_MONTH}(?= ?\d)|(?<=\d )\b{_MONTH}|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\d[\d,.]*|\b[ap]m\b", re.I)


@lru_cache(maxsize=2048)
def _still(tail: str) -> str:
    """Return the end of a system text in which the numbers that change with every request are replaced by 0."""
    at = len(tail)
    still = tail
    for _ in range(_MOST_MOVING):
        begin = tail.rstrip().rfind("\n", 0, len(tail[:at].rstrip())) + 1
        line = tail[begin:at]
        if _moves(line):
            still = still[:begin] + _FIGURES.sub("0", line) + still[at:]
        elif line.strip() and not _CLOSING.fullmatch(line.strip()):
            break
        at = begin
    return still


def _moves(line: str) -> bool:
    """Return whether a line has a date, a time or a remaining budget."""
    if _NUMBER.search(line) is None:
        return False
    name = _NAMES_WHEN.search(line)
    if (name is not None and _WHEN.search(line, name.end())) or _WHEN.match(line):
        return True
    return _NAMES_REST.search(line) is not None and _NAMES_UNIT.search(line) is not None
