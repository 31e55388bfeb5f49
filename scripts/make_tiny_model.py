"""Makes a model that answers nonsense quickly: a Qwen2 of two layers with random weights, and a tokenizer of its own.

    .venv-tools/vllm/bin/python scripts/make_tiny_model.py FOLDER

The weights come from a fixed seed, and the tokenizer is trained on this repository's docs. FOLDER/adapters has two LoRA
adapters of the model, `sql` and `fr`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 2_000
HIDDEN, LAYERS, RANK = 128, 2, 8
CONTEXT_TOKENS = 65_536
BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = """\
{%- set place = namespace(last_user=-1) -%}
{%- for message in messages %}{% if message.role == 'user' %}{% set place.last_user = loop.index0 %}{% endif %}{% endfor -%}
{%- if tools %}{{ '<|im_start|>tools\\n' }}{% for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- if reasoning_effort is defined and reasoning_effort %}{{ '<|im_start|>effort\\n' + reasoning_effort + '<|im_end|>\\n' }}{% endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.reasoning_content and loop.index0 > place.last_user %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}{% endif -%}
{%- if message.content is string %}{{ message.content }}{% else %}{% for part in message.content or [] %}{{ part.text }}{% endfor %}{% endif -%}
{%- for call in message.tool_calls or [] -%}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n' }}{% endif -%}
"""
"""A chat template like those of reasoning models: tools first, calls as JSON, and thoughts only after the user's last
message.
"""

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

trained = ByteLevelBPETokenizer()
prose = sorted(str(page) for page in Path(__file__).parents[1].glob("docs/*.md"))
trained.train(prose, vocab_size=VOCABULARY, min_frequency=2, special_tokens=[BEGIN, END])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token=END, pad_token=END, model_max_length=CONTEXT_TOKENS)
tokenizer.chat_template = TEMPLATE
tokenizer.save_pretrained(folder)

torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=VOCABULARY,
    hidden_size=HIDDEN,
    intermediate_size=256,
    num_hidden_layers=LAYERS,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT_TOKENS,
    tie_word_embeddings=True,
    eos_token_id=tokenizer.eos_token_id,
    torch_dtype="bfloat16",
)
Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)

for name in ("sql", "fr"):
    adapter = folder / "adapters" / name
    adapter.mkdir(parents=True, exist_ok=True)
    weights = {
        f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_{half}.weight": torch.randn(shape, dtype=torch.bfloat16)
        for layer in range(LAYERS)
        for module in ("q_proj", "v_proj")
        for half, shape in (("A", (RANK, HIDDEN)), ("B", (HIDDEN, RANK)))
    }
    save_file(weights, adapter / "adapter_model.safetensors")
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(folder),
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (adapter / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
