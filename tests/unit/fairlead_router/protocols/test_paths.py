"""The table of the gateway's paths has every path that engines' clients ask for."""

import pytest

from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import CANCEL, ENDPOINTS, MODEL, RETRIEVE, Handling, dialect_of, find, response_id

CLIENT_PATHS = (
    "GET /version", "GET /health", "GET /ping", "POST /ping", "POST /tokenize", "POST /detokenize", "GET /v1/models", "POST /v1/systemone",
    "POST /invocations", "POST /v1/chat/completions", "POST /v1/chat/completions/batch", "POST /v1/responses", "GET /v1/responses/resp_1",
    "POST /v1/responses/resp_1/cancel", "POST /v1/completions", "POST /v1/messages", "POST /v1/messages/count_tokens",
    "POST /generative_scoring", "POST /v1/embeddings", "POST /v2/embed", "POST /v1/rerank", "POST /rerank", "POST /v2/rerank", "POST /v1/score", "POST /score",
    "POST /pooling", "POST /classify", "POST /v1/audio/transcriptions", "POST /v1/audio/translations",
)  # fmt: skip
"""Paths that clients of vLLM 0.32 ask for, with a generating or a pooling model."""

ENGINE_ADMINISTRATION = (
    "/load", "/kv_event_sources", "/metrics", "/scale_elastic_ep", "/is_scaling_elastic_ep", "/reset_prefix_cache", "/sleep", "/wake_up",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/start_profile", "/server_info", "/docs", "/openapi.json", "/collective_rpc",
)  # fmt: skip


@pytest.mark.parametrize("line", CLIENT_PATHS)
def test_every_path_clients_ask_engines_for_is_known_with_its_method(line: str) -> None:
    method, path = line.split()
    endpoint = find(path.encode())
    assert endpoint is not None
    assert method in endpoint.methods


@pytest.mark.parametrize("path", ENGINE_ADMINISTRATION)
def test_no_path_of_an_engines_administration_is_known(path: str) -> None:
    assert find(path.encode()) is None


@pytest.mark.parametrize(
    "path",
    [b"/v1/chat%2fcompletions", b"/v1/chat/completions/", b"//v1/chat/completions", b"/v1/./chat/completions", b"/V1/chat/completions",
     b"/v1/responses/..", b"/v1/responses/a%2f..", b"/v1/responses/a/b/cancel", b"/v1/responses/", b"/v1/models/", b"/%68ealth", b""],
)  # fmt: skip
def test_a_path_that_only_means_the_same_after_decoding_is_not_known(path: bytes) -> None:
    assert find(path) is None


def test_models_and_responses_carry_ids_and_model_ids_may_hold_slashes() -> None:
    assert find(b"/v1/models/Qwen/Qwen3-32B") is MODEL
    assert find(b"/v1/models/Qwen%2FQwen3-32B") is MODEL
    assert find(b"/v1/responses/resp_1.a-b") is RETRIEVE
    assert find(b"/v1/responses/resp_1/cancel") is CANCEL
    assert response_id(b"/v1/responses/resp_1/cancel") == response_id(b"/v1/responses/resp_1") == "resp_1"


def test_what_needs_a_prompt_computed_goes_through_the_scheduler_and_only_health_needs_no_key() -> None:
    routed = {endpoint.path for endpoint in ENDPOINTS if endpoint.handling is Handling.ROUTED}
    assert {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
    } <= routed
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.keyless} == {"/version", "/health", "/ping", "/healthz", "/readyz"}


def test_an_unknown_path_is_answered_in_the_protocol_it_seems_to_belong_to() -> None:
    assert dialect_of(b"/v1/messages/batches") is Dialect.ANTHROPIC
    assert dialect_of(b"/v1/responses/x/input_items") is Dialect.RESPONSES
    assert dialect_of(b"/v1/nothing") is Dialect.OPENAI
