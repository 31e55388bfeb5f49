"""A prefill's description of its KV blocks is passed on unchanged, up to the most that any prompt has."""

import pytest

from fairlead.plausibility import HANDOVER_BYTES, HANDOVER_LEVELS
from fairlead_router.relaying.dividing import blocks_of


def answer(blocks: bytes) -> bytes:
    return b'{"id":"x","kv_transfer_params":%b}' % blocks


def test_what_an_engine_names_is_handed_on_byte_for_byte() -> None:
    blocks = b'{"remote_block_ids": [[1, 2]],"x":18446744073709551617}'
    assert blocks_of(answer(blocks)) == blocks


@pytest.mark.parametrize(
    "blocks",
    [
        b"null",
        b"[]",
        b'{"remote_block_ids":"' + b"x" * HANDOVER_BYTES + b'"}',
        b'{"x":' + b"[" * (HANDOVER_LEVELS + 1) * 8 + b"]" * (HANDOVER_LEVELS + 1) * 8 + b"}",
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_handover_or_more_than_any_prompt_has_is_none(blocks: bytes) -> None:
    assert blocks_of(answer(blocks)) is None
