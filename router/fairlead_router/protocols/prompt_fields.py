"""The effect of each field of a request on the prompt. The routing key is made from this table alone.

`RENDERS`: the engine renders the field as tokens, or renders other tokens because of the field. The field's bytes are
in the canonical prompt, at the position where templates put the field. `ROOTS`: the field adds no tokens, but requests
with different values of it share no cached block, or have entirely different tokens. `ROUTES`: the router reads the
field, but not for the prompt. `IGNORED`: the field affects only how the answer is generated and reported.

The table has the fields of vLLM 0.32.0 and SGLang 0.5.23. A test compares it with recorded lists of both engines, and
the routing key with the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Fate(Enum):
    """The effect of a field on the prompt; the module's docstring explains the values."""

    RENDERS = "renders"
    ROOTS = "roots"
    ROUTES = "routes"
    IGNORED = "ignored"


ROOTS: Mapping[str, object] = {
    "cache_salt": "",
    "extra_key": "",
    "lora_path": "",
    "chat_template": "",
    "add_special_tokens": None,
    "truncate_prompt_tokens": None,
    "truncation_side": None,
    "truncation": "disabled",
    "padding": "do_not_pad",
    "mm_processor_kwargs": {},
    "media_io_kwargs": {},
    "images_config": {},
    "video_config": {},
    "max_dynamic_patch": None,
    "min_dynamic_patch": None,
    "use_audio_in_video": False,
    "embed_overrides": None,
    "embed_override_token_id": None,
}
"""The fields with the effect `ROOTS`, each with the value that has the same meaning as a missing field."""

_TABLE: tuple[tuple[Fate, str, str], ...] = (
    (
        Fate.RENDERS,
        "vLLM: renderers/online_renderer.py, openai/chat_completion/protocol.py build_chat_params",
        "messages tools documents chat_template_kwargs reasoning_effort add_generation_prompt continue_final_message",
    ),
    (
        Fate.RENDERS,
        "SGLang renders no tools for `none` and one for a named function (openai/serving_chat.py); vLLM with "
        "--exclude-tools-when-tool-choice-none, and for Kimi K3 (renderers/kimi_k3.py)",
        "tool_choice",
    ),
    (Fate.RENDERS, "SGLang: openai/protocol.py, read by the encoders of some models", "thinking task"),
    (Fate.RENDERS, "SGLang: openai/serving_chat.py; ids in the place of the messages", "input_ids"),
    (Fate.RENDERS, "vLLM: anthropic/serving.py _convert_system_message", "system"),
    (Fate.RENDERS, "vLLM: anthropic/serving.py _handle_output_config; of it the effort alone", "output_config"),
    (Fate.RENDERS, "vLLM: openai/responses/utils.py construct_input_messages", "input instructions previous_input_messages"),
    (Fate.RENDERS, "vLLM: openai/responses/protocol.py build_chat_params; of it the effort alone", "reasoning"),
    (Fate.RENDERS, "both: the text or ids themselves; SGLang's code template for what follows", "prompt prompt_embeds suffix"),
    (Fate.ROOTS, "vLLM: v1/core/kv_cache_utils.py; SGLang: openai/serving_base.py, of the radix tree", "cache_salt extra_key lora_path"),
    (
        Fate.ROOTS,
        "vLLM: renderers/params.py: another template, other ids at the beginning, or ids cut off there",
        "chat_template add_special_tokens truncate_prompt_tokens truncation_side truncation padding",
    ),
    (
        Fate.ROOTS,
        "vLLM: multimodal/hasher.py; SGLang: multimodal processors; how many tokens a medium becomes",
        "mm_processor_kwargs media_io_kwargs images_config video_config max_dynamic_patch min_dynamic_patch use_audio_in_video",
    ),
    (Fate.ROOTS, "SGLang: openai/serving_embedding.py", "embed_overrides embed_override_token_id"),
    (
        Fate.ROUTES,
        "the pool, the session, the instance and the length of the answer",
        "model user metadata session_id session_params prompt_cache_key previous_response_id background priority service_tier "
        "stream stream_options max_tokens max_completion_tokens max_output_tokens "
        "data_parallel_rank routed_dp_rank disagg_prefill_dp_rank",
    ),
    (
        Fate.ROUTES,
        "an answer that one prefill and one decode instance can or cannot compute together (`dividing`)",
        "n best_of use_beam_search echo prompt_logprobs return_prompt_text",
    ),
    (
        Fate.ROUTES,
        "refused: they point an engine at its peers (`peer_fields`)",
        "kv_transfer_params ec_transfer_params bootstrap_host bootstrap_port bootstrap_room",
    ),
    (
        Fate.IGNORED,
        "both: sampling",
        "frequency_penalty presence_penalty repetition_penalty length_penalty temperature top_p top_k min_p seed logit_bias "
        "stop stop_token_ids stop_regex stop_sequences include_stop_str_in_output no_stop_trim ignore_eos min_tokens bad_words "
        "allowed_token_ids repetition_detection thinking_token_budget watermark watermarking custom_logit_processor custom_params "
        "vllm_xargs",
    ),
    (
        Fate.IGNORED,
        "both: grammars of the answer; only Kimi K3's renderer shows the model its response_format",
        "response_format structured_outputs json_schema regex ebnf text parallel_tool_calls max_tool_calls",
    ),
    (
        Fate.IGNORED,
        "both: the reports of the answer beside its text",
        "logprobs top_logprobs logprob_token_ids include_reasoning separate_reasoning stream_reasoning stream_interval "
        "skip_special_tokens spaces_between_special_tokens return_tokens_as_token_ids return_token_ids return_prompt_token_ids "
        "return_token_offsets return_hidden_states return_routed_experts routed_experts_prompt_start routed_experts_start_len "
        "return_cached_tokens_details return_spec_tokens_details return_meta_info return_input_ids_in_sglext "
        "return_output_ids_in_sglext return_sampling_mask sampling_logprobs_mode return_flat_raw_output_top_logprobs "
        "return_flat_raw_top_logprobs_b64 mm_payload return_mm_kwargs include store enable_response_messages "
        "encoding_format embed_dtype endianness dimensions use_activation",
    ),
    (Fate.IGNORED, "both: names and labels", "request_id rid custom_labels betas"),
)

FATES: Mapping[str, Fate] = {field: fate for fate, _, fields in _TABLE for field in fields.split()}
"""The effect of each field, in every protocol that has the field. `EXCEPTIONS` has the exceptions."""

EXCEPTIONS: Mapping[tuple[str, str], Fate] = {
    ("/v1/responses", "prompt"): Fate.IGNORED,  # a stored template of OpenAI's, which neither engine has
}


def fate(path: str, field: str) -> Fate | None:
    """Return the effect of this field in a request to this path; None if the field is not in the table."""
    return EXCEPTIONS.get((path, field)) or FATES.get(field)
