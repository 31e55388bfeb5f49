"""Pod addresses are never shared and not soon reused."""

from hypothesis import given
from hypothesis import strategies as st

from processkube.kubelet.addresses import AddressPool
from processkube.testing.examples import examples


def test_addresses_start_at_the_first_of_the_range() -> None:
    assert AddressPool(node=40).take() == "127.40.0.1"


def test_an_address_given_back_is_not_the_next_one_taken() -> None:
    pool = AddressPool(node=41)
    first = pool.take()
    pool.give_back(first)
    assert pool.take() == "127.41.0.2"


def test_an_address_in_use_after_a_wrap_is_skipped() -> None:
    pool = AddressPool(node=40)
    kept = pool.take()
    for _ in range(250 * 250 - 1):
        pool.give_back(pool.take())
    assert kept in pool.used
    assert pool.take() == "127.40.0.2"


@examples(50)
@given(st.lists(st.booleans(), max_size=60))
def test_two_pods_never_have_one_address(history: list[bool]) -> None:
    pool, held = AddressPool(node=40), []
    for take in history:
        if take:
            held.append(pool.take())
        elif held:
            pool.give_back(held.pop(0))
        assert len(set(held)) == len(held)
        assert not any(address.endswith((".0", ".255")) for address in held)
