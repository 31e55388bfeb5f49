"""Recomputes an engine's own block hashes from token ids.

vLLM hashes `(parent's hash, tokens, extra keys)`, serialised as canonical CBOR or as a pickle, with SHA-256 or 128-bit
xxh3. The first block's parent is the hash of PYTHONHASHSEED's text. If this variable is not set, the parent is random
and no hash can be recomputed. Source: `v1/core/kv_cache_utils.py` and `utils/hashing.py` of vLLM 0.10 to 0.32; the
vectors of the unit tests come from a real engine.

The index does not need these hashes. They show whether Fairlead interprets token ids, block size and adapter in the
same way as the engine.
"""

import hashlib
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from xxhash import xxh3_128_digest

from fairlead.kv_events.events import BlockHash


def _cbor(value: object) -> bytes:
    """Encode a value as canonical CBOR (RFC 8949). Block hashes are made of None, bool, int, bytes, text and sequences
    of them.
    """
    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return _cbor_head(0, value) if value >= 0 else _cbor_head(1, -1 - value)
    if isinstance(value, bytes):
        return _cbor_head(2, len(value)) + value
    if isinstance(value, str):
        return _cbor_head(3, len(text := value.encode())) + text
    if isinstance(value, tuple | list):
        return _cbor_head(4, len(value)) + b"".join(map(_cbor, value))
    raise TypeError(f"a block hash is made of numbers, texts and sequences, not of {type(value).__name__}")


def _cbor_head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((major << 5 | argument,))
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes((major << 5 | code,)) + argument.to_bytes(size, "big")
    raise OverflowError(f"{argument} does not fit 64 bits")


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


ALGORITHMS: dict[str, Callable[[object], bytes]] = {
    "sha256_cbor": lambda value: _sha256(_cbor(value)),
    "sha256": lambda value: _sha256(_pickled(value)),
    "xxhash_cbor": lambda value: xxh3_128_digest(_cbor(value)),
    "xxhash": lambda value: xxh3_128_digest(_pickled(value)),
}
"""Hash algorithms, keyed by vLLM's names for `--prefix-caching-hash-algo`."""


class HashForm(Enum):
    """Whether events carry the whole hash, or its last 64 bits as a number."""

    DIGEST = "digest"
    UNSIGNED = "unsigned"
    SIGNED = "signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHashing:
    """The way in which an engine hashes blocks: one of `ALGORITHMS`, the text of the engine's PYTHONHASHSEED, and the
    form of the hashes in its events.
    """

    algorithm: str
    seed: str
    form: HashForm = HashForm.UNSIGNED

    def none_hash(self) -> bytes:
        """Return the hash that stands for the parent of every first block."""
        return ALGORITHMS[self.algorithm](self.seed)

    def block_hashes(
        self, token_ids: Sequence[int], block_size: int, *, lora_name: str | None = None, cache_salt: str | None = None
    ) -> Iterator[BlockHash]:
        """Yield the hashes of the full blocks, as events carry them."""
        parent: bytes | None = None
        adapter = () if lora_name is None else (lora_name,)
        extra = adapter if cache_salt is None else (*adapter, cache_salt)
        for begin in range(0, len(token_ids) - block_size + 1, block_size):
            parent = self.digest(parent, token_ids[begin : begin + block_size], extra)
            extra = adapter  # only the first block is salted
            yield self.formed(parent)

    def digest(self, parent: bytes | None, token_ids: Sequence[int], extra_keys: tuple[str, ...] = ()) -> bytes:
        """Return the whole hash of the block that follows the block with the hash `parent`. `parent` None = the first
        block.
        """
        return ALGORITHMS[self.algorithm]((self.none_hash() if parent is None else parent, tuple(token_ids), extra_keys or None))

    def formed(self, digest: bytes) -> BlockHash:
        """Convert a whole hash to the form that events carry."""
        return digest if self.form is HashForm.DIGEST else int.from_bytes(digest[-8:], "big", signed=self.form is HashForm.SIGNED)


def recognise(
    sequences: Sequence[Sequence[int]], block_size: int, seen: Collection[BlockHash], seeds: Sequence[str]
) -> EngineHashing | None:
    """Return the engine's hash algorithm and seed, or None. The algorithm fits if some hashes of these token sequences,
    computed with it, are among the hashes `seen`.

    64 bits do not agree by chance, so one matching hash is proof.
    """
    if any(isinstance(block_hash, bytes) for block_hash in seen):
        form = HashForm.DIGEST
    else:
        form = HashForm.SIGNED if any(isinstance(block_hash, int) and block_hash < 0 for block_hash in seen) else HashForm.UNSIGNED
    for seed in seeds:
        for algorithm in ALGORITHMS:
            hashing = EngineHashing(algorithm=algorithm, seed=seed, form=form)
            if any(block_hash in seen for token_ids in sequences for block_hash in hashing.block_hashes(token_ids, block_size)):
                return hashing
    return None
