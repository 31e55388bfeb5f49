"""Embeddings of the simulated model: hashed bags of words, so that texts with words in common lie near each other and
equal texts are equal."""

from math import sqrt

import xxhash

DIMENSIONS = 256


def embedding(prompt: bytes) -> list[float]:
    """A unit vector: each word adds or takes one in the dimension its hash names (feature hashing, Weinberger et al.

    2009).
    """
    vector = [0.0] * DIMENSIONS
    for word in prompt.lower().split() or (prompt,):
        number = xxhash.xxh3_64_intdigest(word)
        vector[number % DIMENSIONS] += 1.0 if number & (1 << 63) else -1.0
    length = sqrt(sum(value * value for value in vector))
    if length == 0.0:  # words that cancel out
        vector[0] = length = 1.0
    return [value / length for value in vector]


def cosine(one: list[float], other: list[float]) -> float:
    """Cosine of two unit vectors."""
    return sum(a * b for a, b in zip(one, other, strict=True))
