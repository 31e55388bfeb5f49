"""The words a simulated engine answers with.

Every token is one word of exactly `bytes_per_token` bytes, its space included, so n tokens of an answer fed back as
part of the next prompt count as n tokens again and fill the same blocks.
"""

import random

import xxhash

_POOL_WORDS = 4096


class AnswerBook:
    """A fixed stock of words; an answer is a run of it whose start depends on the prompt, so equal prompts get equal
    answers."""

    def __init__(self, seed: int, bytes_per_token: int) -> None:
        rng = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._width = bytes_per_token
        words = [
            "".join(rng.choices(letters, k=bytes_per_token - 1)) + " " if bytes_per_token > 1 else rng.choice(letters)
            for _ in range(_POOL_WORDS)
        ]
        self._text = "".join(words).encode("ascii")

    def start_of(self, prompt: bytes) -> int:
        """Where in the stock the answer to this prompt begins."""
        return xxhash.xxh3_64_intdigest(prompt) % _POOL_WORDS

    def words(self, start: int, first: int, stop: int) -> bytes:
        """Tokens `first..stop` of the answer beginning at `start`."""
        size = len(self._text)
        begin = (start + first) * self._width
        end = (start + stop) * self._width
        if end <= size:
            return self._text[begin:end]
        turns = (end - 1) // size + 1
        return (self._text * turns)[begin:end]
