"""Request bodies in the forms in which clients write conversations, for every protocol.

Together they have every field on which a prompt can depend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is, naïvely"}}, "required": ["path"]}
FUNCTION = {"name": "read_file", "description": "Reads a file and tells what it says.", "parameters": SCHEMA}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "a/b.txt",  "lines": [1, 2.50, null]}'},
}
ASKED = {"role": "user", "content": "What does the file say? Answer in one sentence, please. " * 6}
ANSWERED = {"role": "assistant", "content": "It says hello."}
PARTS = [{"type": "text", "text": "First part."}, {"type": "text", "text": "Second part, with more words."}]

_CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
_CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "hello, said the file\n" * 8}

CHATS: Mapping[str, Body] = {
    "plain": {"messages": [ASKED]},
    "parts": {"messages": [{"role": "user", "content": PARTS}]},
    "one-part": {"messages": [{"role": "user", "content": PARTS[:1]}]},
    "tool-call": {"messages": [{"role": "system", "content": "Be brief."}, ASKED, _CALLED, _RESULT], **_CHAT_TOOLS},
    "tool-result-in-parts": {"messages": [ASKED, _CALLED, {**_RESULT, "content": PARTS}], **_CHAT_TOOLS},
    "parallel-calls": {"messages": [ASKED, {**_CALLED, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}, _RESULT, _RESULT], **_CHAT_TOOLS},
    "broken-arguments": {
        "messages": [ASKED, {**_CALLED, "tool_calls": [{**CALL, "function": {"name": "read_file", "arguments": ""}}]}, _RESULT],
        **_CHAT_TOOLS,
    },
    "thoughts": {"messages": [ASKED, {**_CALLED, "reasoning": "I read it first."}, _RESULT], **_CHAT_TOOLS},
    "thoughts-by-the-older-name": {"messages": [ASKED, {**_CALLED, "reasoning_content": "I read it first."}, _RESULT], **_CHAT_TOOLS},
    "thoughts-of-a-former-turn": {"messages": [ASKED, {**ANSWERED, "reasoning_content": "I know it."}, ASKED]},
    "tools-not-to-be-used": {"messages": [ASKED], **_CHAT_TOOLS, "tool_choice": "none"},
    "tools-in-another-order": {
        "messages": [ASKED],
        "tools": [{"function": {"strict": False, "parameters": SCHEMA, "name": "b", "vendor": 1}, "type": "function"}],
    },
    "effort": {"messages": [ASKED], "reasoning_effort": "high"},
    "no-effort": {"messages": [ASKED], "reasoning_effort": "none"},
    "effort-and-arguments": {"messages": [ASKED], "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
    "continued": {"messages": [ASKED, ANSWERED], "add_generation_prompt": False, "continue_final_message": True},
    "special-tokens": {"messages": [ASKED], "add_special_tokens": True},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, ASKED]},
    "late-system": {"messages": [ASKED, {"role": "system", "content": "Be brief."}, ASKED]},
    "names": {"messages": [{**ASKED, "name": "ann"}, ANSWERED, ASKED]},
    "billing-line": {"messages": [{"role": "system", "content": "x-anthropic-billing-header: cch=12345;\nBe brief."}, ASKED]},
    "billing-part": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "x-anthropic-billing-header: cch=12345;"}, *PARTS]},
            ASKED,
        ]
    },
    "empty-text": {"messages": [{"role": "system", "content": ""}, ASKED]},
    "letters": {"messages": [{"role": "user", "content": "naïve café 東京 🚀 <|im_end|> \t\r\n end"}]},
}

_USES = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a/b.txt", "lines": [1, 2.5, None], "ä": "東京"}}
_GIVES = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello, said the file\n" * 8}
_TOOL = {"name": "read_file", "description": "Reads a file and tells what it says.", "input_schema": SCHEMA}
_USED = [ASKED, {"role": "assistant", "content": [_USES]}]
_THINKS = {"type": "thinking", "thinking": "I read it first.", "signature": "c2ln"}

MESSAGES: Mapping[str, Body] = {
    "plain": {"messages": [ASKED]},
    "system": {"system": "Be brief.", "messages": [ASKED]},
    "system-in-blocks": {"system": PARTS, "messages": [ASKED]},
    "billing-block": {"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=12345;"}, *PARTS], "messages": [ASKED]},
    "billing-line": {"system": "x-anthropic-billing-header: cch=12345;\nBe brief.", "messages": [ASKED]},
    "late-system": {"system": "Be brief.", "messages": [ASKED, {"role": "system", "content": PARTS}, ANSWERED, ASKED]},
    "late-system-with-billing": {
        "messages": [ASKED, {"role": "system", "content": "x-anthropic-billing-header: cch=1;\nHurry."}, ANSWERED, ASKED]
    },
    "marks": {"messages": [{"role": "user", "content": [{**PARTS[0], "cache_control": {"type": "ephemeral"}}]}]},
    "blocks": {"messages": [{"role": "user", "content": [*PARTS, {"type": "text", "text": ""}]}]},
    "tool-call": {"messages": [*_USED, {"role": "user", "content": [_GIVES]}], "tools": [_TOOL]},
    "tool-result-in-blocks": {"messages": [*_USED, {"role": "user", "content": [{**_GIVES, "content": PARTS}]}], "tools": [_TOOL]},
    "empty-result": {"messages": [*_USED, {"role": "user", "content": [{**_GIVES, "content": None}]}], "tools": [_TOOL]},
    "failed-result": {"messages": [*_USED, {"role": "user", "content": [{**_GIVES, "is_error": True}]}], "tools": [_TOOL]},
    "result-and-words": {"messages": [*_USED, {"role": "user", "content": [PARTS[0], _GIVES, PARTS[1]]}], "tools": [_TOOL]},
    "words-and-call": {
        "messages": [ASKED, {"role": "assistant", "content": [_THINKS, PARTS[0], _USES]}, {"role": "user", "content": [_GIVES]}],
        "tools": [_TOOL],
    },
    "parallel-calls": {
        "messages": [
            ASKED,
            {"role": "assistant", "content": [_USES, {**_USES, "id": "toolu_2", "input": {}}]},
            {"role": "user", "content": [_GIVES, {**_GIVES, "tool_use_id": "toolu_2"}]},
        ],
        "tools": [_TOOL],
    },
    "redacted-thoughts": {
        "messages": [ASKED, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "AAAA"}, PARTS[0]]}, ASKED]
    },
    "only-thoughts": {"messages": [ASKED, {"role": "assistant", "content": [_THINKS]}, ASKED]},
    "prefilled": {"messages": [ASKED, {"role": "assistant", "content": "It says"}]},
    "no-thinking": {"messages": [ASKED], "thinking": {"type": "disabled"}},
    "effort": {"messages": [ASKED], "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    "format": {"messages": [ASKED], "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    "tool-choice": {"messages": [ASKED], "tools": [_TOOL], "tool_choice": {"type": "any"}},
    "tool-by-name": {"messages": [ASKED], "tools": [_TOOL], "tool_choice": {"type": "tool", "name": "read_file"}},
    "no-tool-choice": {"messages": [ASKED], "tools": [_TOOL], "tool_choice": {"type": "none"}},
    "no-tools": {"messages": [ASKED], "tools": []},
    "schema-without-type": {"messages": [ASKED], "tools": [{"name": "now", "input_schema": {"properties": {}}}]},
    "deferred-tool": {"messages": [ASKED], "tools": [{**_TOOL, "defer_loading": True, "strict": True}]},
    "added-tool": {
        "messages": [
            ASKED,
            {
                "role": "system",
                "content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {**_TOOL, "name": "b"}}}],
            },
            ANSWERED,
            ASKED,
        ],
        "tools": [_TOOL],
    },
    "arguments": {"messages": [ASKED], "chat_template_kwargs": {"enable_thinking": False}},
}

_SAYS = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
_REASONS = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I read it first."}]}
_CALLS = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read_file", "arguments": '{"path": "a/b.txt"}'}
_OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "hello, said the file\n" * 8}
_FLAT = {"type": "function", **FUNCTION}
_TEXT = {"type": "output_text", "text": "It says hello.", "annotations": []}

RESPONSES: Mapping[str, Body] = {
    "text": {"input": "What does the file say?"},
    "instructions": {"input": "What does the file say?", "instructions": "Be brief."},
    "items": {"input": [{"type": "message", **ASKED}, {"role": "user", "content": [{"type": "input_text", "text": "Please."}]}]},
    "parts": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "One."}, {"type": "input_text", "text": "Two."}]}]},
    "developer": {"input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}, ASKED]},
    "answered": {"input": [ASKED, {**_SAYS, "content": [_TEXT]}, ASKED]},
    "answered-in-two-parts": {"input": [ASKED, {**_SAYS, "content": [_TEXT, _TEXT]}, ASKED]},
    "answered-by-a-text": {"input": [ASKED, ANSWERED, ASKED]},
    "tool-call": {"input": [ASKED, _CALLS, _OUTPUT], "tools": [{**_FLAT, "strict": True}]},
    "thoughts": {"input": [ASKED, _REASONS, _CALLS, _OUTPUT], "tools": [_FLAT]},
    "thoughts-in-summary": {
        "input": [ASKED, {**_REASONS, "content": None, "summary": [{"type": "summary_text", "text": "I read."}]}, _CALLS, _OUTPUT]
    },
    "thoughts-of-a-former-turn": {"input": [ASKED, _REASONS, {**_SAYS, "content": [_TEXT]}, ASKED]},
    "parallel-calls": {"input": [ASKED, _CALLS, {**_CALLS, "call_id": "call_2"}, _OUTPUT, {**_OUTPUT, "call_id": "call_2"}]},
    "words-and-call": {"input": [ASKED, {**_SAYS, "content": [_TEXT]}, _CALLS, _OUTPUT], "tools": [_FLAT]},
    "output-in-parts": {"input": [ASKED, _CALLS, {**_OUTPUT, "output": [{"type": "input_text", "text": "hello"}]}]},
    "custom-tool": {
        "input": [
            ASKED,
            {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "*** Begin\n+ä"},
            {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
        ],
        "tools": [{"type": "custom", "name": "patch", "description": "Patches."}],
    },
    "namespace": {
        "input": [ASKED, {**_CALLS, "namespace": "files"}, _OUTPUT],
        "tools": [{"type": "namespace", "name": "files", "description": "Files.", "tools": [_FLAT]}, _FLAT],
    },
    "service-tools": {"input": "Hi", "tools": [{"type": "web_search"}, _FLAT]},
    "only-service-tools": {"input": "Hi", "tools": [{"type": "web_search"}]},
    "effort": {"input": "Hi", "reasoning": {"effort": "high"}},
    "no-effort": {"input": "Hi", "reasoning": {"effort": "none"}},
    "summary-wanted": {"input": "Hi", "reasoning": {"summary": "auto"}},
    "continued": {"input": [ASKED, {**_SAYS, "status": "incomplete", "content": [_TEXT]}]},
    "tool-choice": {"input": "Hi", "tools": [_FLAT], "tool_choice": "required"},
    "no-tool-choice": {"input": "Hi", "tools": [_FLAT], "tool_choice": "none"},
    "arguments": {"input": "Hi", "chat_template_kwargs": {"enable_thinking": False}},
}

FORMS: Mapping[str, Mapping[str, Body]] = {"/v1/chat/completions": CHATS, "/v1/messages": MESSAGES, "/v1/responses": RESPONSES}
"""Request bodies by path and then by a name for what is special about the body. They have neither a model nor a limit
of the output.
"""
