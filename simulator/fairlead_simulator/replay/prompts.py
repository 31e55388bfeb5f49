"""Prompt texts for trace rows. Equal block ids give equal texts, in every process and in every order of the rows."""

import random
from functools import lru_cache

import orjson
import xxhash

from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow

_WORD_BYTES = 8
_POOL_WORDS = 8192
_RUN_WORDS = 32


class PromptWriter:
    """A writer of prompts for trace rows. Each block id becomes `512 x bytes_per_token` bytes of ASCII words; the last
    block is cut to the row's length.

    A different `salt` gives different texts, for a repetition of the trace. Only the blocks in `shared` have the same
    text for every salt.
    """

    def __init__(self, bytes_per_token: int, shared: frozenset[int] = frozenset(), cached_blocks: int = 1024) -> None:
        rng = random.Random(bytes_per_token)
        words = ("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.choice((7, 7, 7, 3)))) for _ in range(_POOL_WORDS))
        self._pool = "".join(word.ljust(_WORD_BYTES) for word in words).encode("ascii")
        self._bytes_per_token = bytes_per_token
        self._block_bytes = BLOCK_TOKENS * bytes_per_token
        self._shared = shared
        self.block = lru_cache(maxsize=cached_blocks)(self._write_block)

    def prompt(self, row: TraceRow, salt: int = 0) -> bytes:
        """Return the prompt of a row, which has exactly `input_length x bytes_per_token` bytes."""
        block, shared = self.block, self._shared
        text = b"".join([block(number, 0 if number in shared else salt) for number in row.hash_ids])
        return text[: row.input_length * self._bytes_per_token]

    def _write_block(self, number: int, salt: int) -> bytes:
        """Return the text of a block. It begins with a fingerprint of the block's id and the salt, so that different
        blocks differ from their first word on.
        """
        seed = xxhash.xxh3_64_intdigest(number.to_bytes(16, "little", signed=True) + salt.to_bytes(8, "little"))
        parts = [b"%015x " % (seed >> 4)]
        size, state, limit = 16, seed, _POOL_WORDS - _RUN_WORDS
        while size < self._block_bytes:
            state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
            start = (state >> 33) % limit * _WORD_BYTES
            parts.append(self._pool[start : start + _RUN_WORDS * _WORD_BYTES])
            size += _RUN_WORDS * _WORD_BYTES
        return b"".join(parts)[: self._block_bytes]


class BodyWriter:
    """A builder of the JSON bodies of streaming chat requests. It does not encode the prompt as JSON, to save CPU
    time.
    """

    def __init__(self, model: str) -> None:
        self._before = b'{"model":%b,"messages":[{"role":"user","content":"' % orjson.dumps(model)

    def body(self, prompt: bytes, max_tokens: int) -> bytes:
        """Return the body with this prompt. The prompt must contain no characters that JSON escapes; PromptWriter's
        texts contain none.
        """
        after = b'"}],"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}}' % max_tokens
        return b"".join((self._before, prompt, after))
