"""The table of each request field's effect on the prompt, compared with engines' recorded request models."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead_router.protocols.paths import find
from fairlead_router.protocols.prompt_fields import EXCEPTIONS, FATES, ROOTS, Fate, fate
from fairlead_router.protocols.prompts import Prompt

RECORDED = json.loads((Path(__file__).parent / "engine_fields.json").read_text())
KNOWN = sorted({(path, field) for engine in ("vllm", "sglang") for path, fields in RECORDED[engine]["fields"].items() for field in fields})
"""Every field of every request model."""

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SAID = [{"role": "user", "content": "hello"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID, "tools": [TOOL], "tool_choice": "auto"},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": SAID, "tools": [{"name": "f", "input_schema": {}}]},
    "/v1/responses": {"input": SAID, "tools": [{"type": "function", "name": "f"}]},
    "/v1/embeddings": {"messages": SAID},
}

OTHER: dict[str, Any] = {
    "messages": [*SAID, {"role": "assistant", "content": "hi"}],
    "tools": [],
    "tool_choice": "none",
    "documents": [{"text": "d"}],
    "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_effort": "low",
    "add_generation_prompt": False,
    "continue_final_message": True,
    "thinking": {"type": "disabled"},
    "task": "query",
    "input_ids": [1, 2],
    "system": "Be kind.",
    "output_config": {"effort": "low"},
    "input": "bye",
    "instructions": "Be kind.",
    "previous_input_messages": [{"role": "user"}],
    "reasoning": {"effort": "low"},
    "prompt": "bye",
    "prompt_embeds": "UEsDBA==",
    "suffix": "bye",
    "truncation": "auto",
    "padding": "max_length",
    "add_special_tokens": True,
    "truncate_prompt_tokens": 5,
    "truncation_side": "left",
    "use_audio_in_video": True,
    "max_dynamic_patch": 2,
    "min_dynamic_patch": 2,
    "embed_overrides": [[[0.1]]],
    "embed_override_token_id": 5,
    **dict.fromkeys(("cache_salt", "extra_key", "lora_path", "chat_template"), "x"),
    **{field: {"a": 1} for field in ("mm_processor_kwargs", "media_io_kwargs", "images_config", "video_config")},
}
"""A value that changes the prompt, for each field that can."""

DEFAULTS: dict[tuple[str, str], Any] = {
    ("/v1/embeddings", "add_generation_prompt"): True,
    ("/v1/messages", "tool_choice"): {"type": "none"},
}
"""Defaults by path, where a path has another one than the rest."""

JUNK: tuple[Any, ...] = (True, False, 0, 7, 0.5, "x", ["x"], [1], {"a": 1}, [{"type": "text", "text": "x"}])


def key(path: str, document: dict[str, Any]) -> Prompt:
    endpoint = find(path.encode())
    assert endpoint is not None
    return endpoint.prompt(document)


@pytest.mark.parametrize(("path", "field"), KNOWN)
def test_every_field_of_engines_requests_is_in_the_table(path: str, field: str) -> None:
    assert fate(path, field) is not None, (
        "say in fairlead_router.protocols.prompt_fields what this field does to the prompt, and from where you know"
    )


@pytest.mark.parametrize(("path", "field"), [one for one in KNOWN if fate(*one) in (Fate.RENDERS, Fate.ROOTS)])
def test_a_field_that_changes_what_engines_render_changes_the_key(path: str, field: str) -> None:
    request = REQUESTS[path]
    value = DEFAULTS.get((path, field), OTHER[field])
    changed = key(path, {**request, field: value})
    without = key(path, request)
    assert (changed.text, changed.root) != (without.text, without.root)
    assert (changed.text == without.text) == (fate(path, field) is Fate.ROOTS)


@pytest.mark.parametrize(("path", "field"), [one for one in KNOWN if fate(*one) in (Fate.ROUTES, Fate.IGNORED)])
def test_no_other_field_changes_the_key(path: str, field: str) -> None:
    request = REQUESTS[path]
    for value in JUNK:
        assert key(path, {**request, field: value}) == key(path, request)


@pytest.mark.parametrize(("path", "field"), [one for one in KNOWN if fate(*one) is Fate.ROOTS])
def test_a_root_that_is_as_good_as_none_is_none(path: str, field: str) -> None:
    for value in (None, ROOTS[field]):
        assert key(path, {**REQUESTS[path], field: value}) == key(path, REQUESTS[path])


def test_fields_that_no_engine_has_do_not_change_the_key() -> None:
    for path, request in REQUESTS.items():
        assert key(path, {**request, "functions": [TOOL], "unheard_of": "x"}) == key(path, request)


def test_the_table_has_no_field_twice_and_none_that_engines_lack() -> None:
    fields = {field for _, field in KNOWN}
    assert FATES.keys() <= fields
    assert {field for field, fate in FATES.items() if fate is Fate.ROOTS} == ROOTS.keys()
    assert set(EXCEPTIONS) <= set(KNOWN)
