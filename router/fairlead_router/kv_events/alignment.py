"""Where in a prompt's texts its tokens end, from the strings that an engine gives for its tokens.

A tokenizer of bytes writes each byte as one printable character (GPT-2's table), one of pieces writes a space as `▁`
and an odd byte as `<0x0A>`; others write plain text. A chat template adds tokens around the texts. Which of the
wordings it is shows by the texts themselves: they must all be found, in their order.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

Wording = Callable[[Sequence[str]], tuple[bytes, list[int]]]
"""Strings of tokens → the bytes they stand for, and where in them each token ends."""


def aligned(texts: Sequence[bytes], token_strings: Sequence[str]) -> tuple[list[int], list[int]] | None:
    """Where each text begins and where each token ends, in bytes of the tokens' own text; None if they do not fit."""
    for wording in _likely(token_strings):
        whole, ends = wording(token_strings)
        begins = _found(texts, whole)
        if begins is not None:
            return begins, ends
    return None


def _found(texts: Sequence[bytes], whole: bytes) -> list[int] | None:
    begins: list[int] = []
    place = 0
    for text in texts:
        begin = whole.find(text, place)
        if begin < 0:
            return None
        begins.append(begin)
        place = begin + len(text)
    return begins


def _likely(token_strings: Sequence[str]) -> Iterator[Wording]:
    sample = "".join(token_strings[:256])
    wordings = [_plain, _pieces, _bytes]
    first = _bytes if "Ġ" in sample or "Ċ" in sample else _pieces if "▁" in sample else _plain
    yield first
    yield from (wording for wording in wordings if wording is not first)


def _byte_characters() -> dict[int, int]:
    """Character → the byte it stands for in GPT-2's table: printable ones themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + place: byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()
_PIECE = re.compile("▁|<0x[0-9A-F]{2}>")


def _bytes(token_strings: Sequence[str]) -> tuple[bytes, list[int]]:
    """One byte a character; a special token's other characters stand for no text and become `?`."""
    return "".join(token_strings).translate(_BYTES).encode("latin-1", "replace"), list(accumulate(map(len, token_strings)))


def _pieces(token_strings: Sequence[str]) -> tuple[bytes, list[int]]:
    parts = [_piece(each) for each in token_strings]
    return b"".join(parts), list(accumulate(map(len, parts)))


def _piece(token: str) -> bytes:
    if len(token) == 6 and _PIECE.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _plain(token_strings: Sequence[str]) -> tuple[bytes, list[int]]:
    parts = [each.encode("utf-8", "surrogatepass") for each in token_strings]
    return b"".join(parts), list(accumulate(map(len, parts)))
