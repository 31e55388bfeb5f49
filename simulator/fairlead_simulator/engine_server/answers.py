"""The words in a simulated engine's answers.

Every token is one word of exactly `bytes_per_token` bytes, including its space. Therefore an answer of n tokens that
becomes part of the next prompt counts as n tokens again and fills the same blocks.
"""

import random

import xxhash

_MOST_WORDS = 4096
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class AnswerBook:
    """A fixed list of distinct words. An answer is a sequence of consecutive words from this list. The index of its
    first word depends only on the prompt, so equal prompts get equal answers.
    """

    def __init__(self, seed: int, bytes_per_token: int) -> None:
        letters = max(1, bytes_per_token - 1)
        count = min(_MOST_WORDS, len(_LETTERS) ** letters)
        numbers = random.Random(seed).sample(range(len(_LETTERS) ** min(letters, 6)), count)
        self._width = bytes_per_token
        words = [_word(number, letters) + (" " if bytes_per_token > 1 else "") for number in numbers]
        self._text = "".join(words).encode("ascii")
        self._places = {word.encode("ascii"): place for place, word in enumerate(words)}

    def start_of(self, prompt: bytes, *, continues: bool = False) -> int:
        """Return the index in the list of words at which the answer to this prompt begins. If `continues` and the
        prompt ends with a word of the list, this is the index of the next word, so that an unfinished answer in the
        prompt is continued.
        """
        if continues and (last := self._places.get(prompt[-self._width :])) is not None:
            return (last + 1) % len(self._places)
        return xxhash.xxh3_64_intdigest(prompt) % len(self._places)

    def words(self, start: int, first: int, stop: int) -> bytes:
        """Return the tokens with indexes from `first` to `stop` (excluded) of the answer that begins at `start`."""
        size = len(self._text)
        begin = (start + first) * self._width
        end = (start + stop) * self._width
        if end <= size:
            return self._text[begin:end]
        turns = (end - 1) // size + 1
        return (self._text * turns)[begin:end]


def _word(number: int, letters: int) -> str:
    """Return the word with this number: the number in base 26, written with letters, the lowest digit first."""
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(letters))
