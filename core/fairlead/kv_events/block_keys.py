"""Keys of a prompt's blocks, computed from its token ids alone.

A key is xxh3-64 of the block's tokens (unsigned 32 bits each, little endian), seeded with the key of the block before.
Equal keys mean equal prefixes. Blocks of different adapters, salts or images must never match, so the other inputs of
an engine's hash (`extra_keys`) are included in the seed.
"""

import sys
from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from fairlead.kv_events.events import BlockStored

TOKEN_BYTES = 4
_BIG_ENDIAN = sys.byteorder == "big"


def block_keys(
    token_ids: Sequence[int], block_size: int, *, lora_name: str | None = None, cache_salt: str | None = None
) -> tuple[int, ...]:
    """Return the keys of the full blocks of `block_size` tokens in order; a partial block at the end has no key.

    Raises ValueError for block_size < 1, OverflowError or TypeError for an invalid token id.
    """
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, not {block_size}")
    root = _root_key(lora_name)
    return tuple(_chained(token_bytes(token_ids), block_size, root if cache_salt is None else _seeded(root, (cache_salt,))))


def stored_keys(event: BlockStored, parent_key: int | None) -> list[int]:
    """Return the keys of the blocks of a `BlockStored`, one per hash; `parent_key` is None if it has no parent.

    Raises ValueError if its tokens do not fill its blocks, OverflowError or TypeError for an invalid token id.
    """
    data, size, blocks = token_bytes(event.token_ids), event.block_size, len(event.block_hashes)
    if len(data) != size * TOKEN_BYTES * blocks or size < 1:
        raise ValueError(f"{len(event.token_ids)} tokens do not fill {blocks} blocks of {size}")
    name, extra_keys = event.lora_name, event.extra_keys
    if parent_key is None:
        parent_key = _root_key(name if name is not None or event.lora_id is None else f"lora id {event.lora_id}")
        if event.cache_salt is not None:
            parent_key = _seeded(parent_key, (event.cache_salt,))
    if extra_keys is None or not any(extra_keys):
        return [xxh3_64_intdigest(data, parent_key)] if blocks == 1 else _chained(data, size, parent_key)
    keys: list[int] = []
    for number in range(blocks):
        extra = (extra_keys[number] if number < len(extra_keys) else None) or ()
        if extra and extra[0] == name:
            extra = extra[1:]  # the adapter is in the root key
        begin = number * size * TOKEN_BYTES
        keys += _chained(data[begin : begin + size * TOKEN_BYTES], size, _seeded(keys[-1] if keys else parent_key, extra))
    return keys


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Encode each token in four bytes. Raises OverflowError or TypeError if a token is not an unsigned 32-bit
    number.
    """
    tokens = array("I", token_ids)
    if _BIG_ENDIAN:
        tokens.byteswap()
    return tokens.tobytes()


def _chained(data: bytes, block_size: int, key: int) -> list[int]:
    size = block_size * TOKEN_BYTES
    keys: list[int] = []
    for begin in range(0, len(data) - size + 1, size):
        key = xxh3_64_intdigest(data[begin : begin + size], key)
        keys.append(key)
    return keys


def _root_key(lora_name: str | None) -> int:
    """Return the key before the first block of a prompt for this adapter."""
    return 0 if lora_name is None else int(xxh3_64_intdigest(lora_name.encode()))


def _seeded(parent_key: int, extra: Sequence[object]) -> int:
    """Return the seed for a block that depends on more than its tokens. Without such dependencies, the seed is the
    parent's key.
    """
    return int(xxh3_64_intdigest(repr(_frozen(extra)).encode(), parent_key)) if extra else parent_key


def _frozen(value: object) -> object:
    """Turn lists into tuples, because one engine's encoding has lists where another engine's encoding has tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value
