"""Proofs of the shared secret: a peer that has it is accepted, for one connection and in one direction only."""

import pytest

from fairlead_router.deciding.proofs import Handshake, new_nonce

SECRET = "s" * 64
NONCES = (b"n" * 16, b"m" * 16)
REAL = Handshake(SECRET, "router-0", "router-1", NONCES)


def test_both_sides_believe_each_other() -> None:
    other = Handshake(SECRET, "router-0", "router-1", NONCES)
    assert other.is_asking(REAL.of_asking())
    assert other.is_asked(REAL.of_asked())


@pytest.mark.parametrize(
    "other",
    [
        Handshake("t" * 64, "router-0", "router-1", NONCES),
        Handshake(SECRET, "router-2", "router-1", NONCES),
        Handshake(SECRET, "router-0", "router-2", NONCES),
        Handshake(SECRET, "router-0r", "outer-1", NONCES),
        Handshake(SECRET, "router-0", "router-1", (NONCES[1], NONCES[0])),
        Handshake(SECRET, "router-0", "router-1", (NONCES[0] + NONCES[1], b"")),
    ],
    ids=["secret", "who asks", "who is asked", "where a name ends", "nonces", "where a nonce ends"],
)
def test_a_proof_is_good_for_nothing_else(other: Handshake) -> None:
    assert not REAL.is_asking(other.of_asking())
    assert not REAL.is_asked(other.of_asked())


def test_what_one_side_says_is_no_proof_of_the_other() -> None:
    assert not REAL.is_asking(REAL.of_asked())
    assert not REAL.is_asked(REAL.of_asking())
    assert not REAL.is_asking(b"")


def test_nonces_do_not_come_twice() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
