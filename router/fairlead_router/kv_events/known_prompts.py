"""Keeps the block keys of prompts whose tokens are known, and finds them by the prompts' texts.

An engine reports a prompt's tokens after the prompt was routed. The next prompt that begins with the same text begins
with the same tokens. So this module divides texts into chunks of bytes. A chunk is identified by its own text and all
text before it. For each chunk the module keeps the keys of the engine's blocks that end in the chunk. A lookup costs
one hash for each chunk and no tokenizing. The idea is from llm-d's prefix store. Here, chunks are also separate for
each model, role and template, and all sizes are in bytes.

The strings that an engine reports for its tokens show where in the texts a token ends. A byte-level tokenizer writes
each byte as one printable character (GPT-2's table). A SentencePiece tokenizer writes a space as `▁` and a lone byte as
`<0x0A>`. Other tokenizers write plain text. A chat template adds tokens around the texts. The right convention is the
one with which all texts are found in the tokens, in their order.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from xxhash import xxh3_64_intdigest

from fairlead.kv_events.block_keys import block_keys

Wording = Callable[[Sequence[str]], tuple[bytes, list[int]]]
"""A function that converts the strings of tokens to bytes. It returns the bytes of all tokens, and for each token the
position in these bytes at which the token ends.
"""


def aligned(texts: Sequence[bytes], token_strings: Sequence[str]) -> tuple[list[int], list[int]] | None:
    """Return the start of each text and the end of each token, as positions in the bytes of all tokens; None if the
    texts are not found in the tokens.
    """
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
    """Return GPT-2's table from characters to bytes. A printable byte is written as the character with the same number,
    each other byte as a character from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + place: byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()
_PIECE = re.compile("▁|<0x[0-9A-F]{2}>")


def _bytes(token_strings: Sequence[str]) -> tuple[bytes, list[int]]:
    """Convert the strings of a byte-level tokenizer to bytes, one byte for each character. Characters of special
    tokens, which stand for no text, become `?`.
    """
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


CHUNK_BYTES = 256
MOST_CHUNKS = 200_000
"""Maximum number of kept chunks, which have about 50 MB of text. The least recently used chunks are dropped first."""

UNSURE_TOKENS = 8
"""Number of tokens before the end of a chunk that may differ if another text follows the chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """The parts of a prompt that determine its tokens: the texts, and for each text its head, such as the role."""

    root: bytes
    """A digest of the other inputs that determine the tokens: the form of the request and the arguments of the
    template.
    """
    heads: tuple[bytes, ...]
    texts: tuple[bytes, ...]
    cache_salt: str | None = None
    adapter: str | None = None
    tool_bytes: int = 0
    """Number of bytes of the declarations of tools, which are rendered in addition to the texts."""

    @property
    def size(self) -> int:
        """Number of bytes of everything that is rendered: tools, texts and their heads."""
        return self.tool_bytes + sum(map(len, self.heads)) + sum(map(len, self.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBeginning:
    """The known beginning of a prompt. `blocks`: the keys of the engine's blocks. `tokens`: number of tokens. `size`:
    number of bytes.
    """

    blocks: tuple[int, ...] = ()
    tokens: int = 0
    size: int = 0
    whole: bool = False
    """Whether the beginning is the whole prompt, so that `tokens` is exact."""


NOTHING_KNOWN = KnownBeginning()


@dataclass(frozen=True, slots=True)
class _Chunk:
    blocks: tuple[int, ...]
    """Keys of the blocks that end in this chunk."""
    tokens: int
    """Number of tokens of the prompt up to the end of this chunk."""


class KnownPrompts:
    """The prompts with known tokens, for engines whose blocks have `block_tokens`."""

    def __init__(self, block_tokens: int, *, most_chunks: int = MOST_CHUNKS) -> None:
        self.block_tokens = block_tokens
        self._most = max(1, most_chunks // 2)
        self._young: dict[int, _Chunk] = {}
        """The younger part of the chunks: used or added since it was last emptied. When it is full, it replaces the
        older part.
        """
        self._old: dict[int, _Chunk] = {}
        self.tail_tokens = 0
        """Number of tokens that the template added after the last text of the latest prompt: the end of the message and
        the beginning of the response.
        """

    def __len__(self) -> int:
        """Return the number of kept chunks."""
        return len(self._young) + len(self._old)

    def find(self, prompt: PromptText) -> KnownBeginning:
        """Return the longest known beginning of the prompt; `NOTHING_KNOWN` if there is none."""
        blocks: list[int] = []
        tokens = size = 0
        leads = True
        for name, _, end, more in _chunks(prompt):
            chunk = self._get(name) if leads or end < 0 else None
            if chunk is None:
                leads = False
            elif end >= 0:
                blocks += chunk.blocks
                tokens, size = chunk.tokens, size + more
            elif leads or len(chunk.blocks) == chunk.tokens // self.block_tokens:
                all_blocks = (*blocks, *chunk.blocks) if leads else chunk.blocks
                return KnownBeginning(blocks=all_blocks, tokens=chunk.tokens, size=prompt.size, whole=True)
        return KnownBeginning(blocks=tuple(blocks), tokens=tokens, size=size) if tokens else NOTHING_KNOWN

    def learn(self, prompt: PromptText, token_ids: Sequence[int], token_strings: Sequence[str]) -> bool:
        """Keep the block keys of the prompt. If the token strings do not match the prompt's texts, return False and
        keep only the whole prompt, without its beginnings.

        Raises OverflowError or TypeError for an invalid token id.
        """
        keys = block_keys(token_ids, self.block_tokens, lora_name=prompt.adapter, cache_salt=prompt.cache_salt)
        found = aligned(prompt.texts, token_strings) if len(token_strings) == len(token_ids) else None
        begins, ends = found or ((), ())
        known = 0
        if found is not None:
            last = found[0][-1] + len(prompt.texts[-1])
            self.tail_tokens = len(token_ids) - bisect_right(found[1], last)
        for name, piece, end, _ in _chunks(prompt):
            if end < 0:
                self._put(name, _Chunk(keys[known:], len(token_ids)))
            elif found is not None:
                tokens = bisect_right(ends, begins[piece] + end)
                full = max(known, (tokens - UNSURE_TOKENS) // self.block_tokens)
                self._put(name, _Chunk(keys[known:full], tokens))
                known = full
        return found is not None

    def _get(self, name: int) -> _Chunk | None:
        chunk = self._young.get(name)
        if chunk is None and (chunk := self._old.get(name)) is not None:
            self._put(name, chunk)
        return chunk

    def _put(self, name: int, chunk: _Chunk) -> None:
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[name] = chunk


def _chunks(prompt: PromptText) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each chunk: its hash, the index of its text, the position in that text at which it ends, and its size
    in bytes. The last chunk has the position -1 and identifies the whole prompt.

    Tokens that are rendered before a text belong to the first chunk of that text.
    """
    name, before = xxh3_64_intdigest(prompt.root), prompt.tool_bytes
    for piece, (head, text) in enumerate(zip(prompt.heads, prompt.texts, strict=True)):
        name, before = xxh3_64_intdigest(head, name), before + len(head)
        for end in range(CHUNK_BYTES, len(text) + 1, CHUNK_BYTES):
            name = xxh3_64_intdigest(text[end - CHUNK_BYTES : end], name)
            yield name, piece, end, before + CHUNK_BYTES
            before = 0
        rest = len(text) % CHUNK_BYTES
        name = xxh3_64_intdigest(text[len(text) - rest :], name ^ 1)
        yield name, piece, len(text), before + rest
        before = 0
    yield xxh3_64_intdigest(b"", name ^ 2), 0, -1, 0
