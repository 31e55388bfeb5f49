"""Makes a model that answers nonsense quickly: a Qwen2 of two layers with random weights, and a tokenizer of its own.

    .venv-tools/vllm/bin/python scripts/make_tiny_model.py FOLDER

The weights are of one seed, and the tokenizer is trained on this repository's docs.
"""

import sys
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 2_000
CONTEXT_TOKENS = 4_096
BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

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
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT_TOKENS,
    tie_word_embeddings=True,
    eos_token_id=tokenizer.eos_token_id,
    torch_dtype="bfloat16",
)
Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
