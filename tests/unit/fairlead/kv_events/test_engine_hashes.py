"""An engine's own block hashes. The test vectors come from a real vLLM."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.engine_hashes import ALGORITHMS, EngineHashing, HashForm, recognise

GOLDEN = EngineHashing(algorithm="sha256_cbor", seed="12345")


def test_the_parent_of_first_blocks_follows_from_the_seed() -> None:
    assert GOLDEN.none_hash().hex() == "7292412b7aee6c72390673c639cb26bbadd61da0cb7af52fea097bf4c7b340b2"
    zero = EngineHashing(algorithm="sha256_cbor", seed="0")
    assert zero.none_hash().hex() == "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"


def test_sha256_cbor_gives_the_engines_digests() -> None:
    digests = EngineHashing(algorithm="sha256_cbor", seed="12345", form=HashForm.DIGEST).block_hashes(range(32), 16)
    assert [digest.hex() for digest in digests if isinstance(digest, bytes)] == [
        "698903a202612cd5956c04934ebc5934a45948b13c8921630c78baa172be295e",
        "d0e57deb79c0ff3b9e3afdf08e314530e947c30c46e5361e4ff6313d4117e8fa",
    ]


def test_events_carry_the_last_64_bits_as_a_number() -> None:
    assert list(GOLDEN.block_hashes(range(40), 16)) == [898673328237979998, 5761846912421980410]


def test_adapter_and_salt_change_every_hash_after_them() -> None:
    plain = list(GOLDEN.block_hashes(range(32), 16))
    adapted = list(GOLDEN.block_hashes(range(32), 16, lora_name="sql"))
    salted = list(GOLDEN.block_hashes(range(32), 16, cache_salt="tenant-1"))
    assert not {*plain} & {*adapted} and not {*plain} & {*salted} and not {*adapted} & {*salted}


@pytest.mark.parametrize("form", HashForm)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hashing_is_recognised_by_its_hashes(algorithm: str, form: HashForm) -> None:
    hashing = EngineHashing(algorithm=algorithm, seed="7", form=form)
    tokens = [list(range(start, start + 64)) for start in range(0, 512, 64)]
    seen = {block_hash for token_ids in tokens for block_hash in hashing.block_hashes(token_ids, 16)}
    assert recognise(tokens, 16, seen, ("0", "7")) == hashing
    assert recognise(tokens, 16, seen, ("0",)) is None


@given(tokens=st.lists(st.integers(0, 2**32 - 1), max_size=40), shared=st.integers(0, 40))
def test_equal_hashes_mean_equal_prefixes(tokens: list[int], shared: int) -> None:
    other = tokens[:shared] + [token ^ 1 for token in tokens[shared:]]
    same = min(shared, len(tokens)) // 4
    pairs = list(zip(GOLDEN.block_hashes(tokens, 4), GOLDEN.block_hashes(other, 4), strict=True))
    assert [one == two for one, two in pairs] == [number < same for number in range(len(pairs))]
