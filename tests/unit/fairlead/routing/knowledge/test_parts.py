"""Parts of a pool and homes of prompts: equal for all routers that know the same."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.parts import home_of, part_of, seed_of

NAMES = st.lists(st.text("abc123", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


@given(routers=NAMES, instances=NAMES)
def test_every_instance_is_exactly_one_routers_and_parts_are_alike_in_size(routers: list[str], instances: list[str]) -> None:
    parts = [part_of(router, list(reversed(routers)), instances) for router in routers]
    assert sorted(name for part in parts for name in part) == sorted(instances)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(instances=NAMES, block=st.integers(0, 2**64 - 1))
def test_a_prompt_stays_at_home_unless_its_home_goes(instances: list[str], block: int) -> None:
    ordered = sorted(instances)
    home = ordered[home_of(block, [seed_of(name) for name in ordered])]
    fewer = [name for name in ordered if name == home or hash(name) % 2]
    assert fewer[home_of(block, [seed_of(name) for name in fewer])] == home


def test_a_stranger_has_no_part() -> None:
    assert part_of("me", ["others"], ["i0"]) == frozenset()
