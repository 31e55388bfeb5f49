"""Parts of a pool and homes of prompts are equal for all routers with the same knowledge."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.parts import AT_CONVERSATIONS_HOME, AT_HOME, home_key, home_of, part_of, seed_of
from fairlead_testing.builders.routing import request

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


@given(session=st.text("abc", min_size=1), tokens=st.integers(2, 10**6), held=st.integers(1, 10**6), block=st.integers(0, 2**64 - 1))
def test_turns_that_begin_like_all_others_are_at_home_where_their_conversation_is(session: str, tokens: int, held: int, block: int) -> None:
    turn = replace(request("r", tokens), session=session, blocks=(block,))
    key = home_key(turn, held)
    if 2 * held > tokens:
        assert key is None, "this router sent an earlier turn there"
        return
    other = replace(request("r2", 10 * tokens), session=session, blocks=(7,))
    assert key == home_key(other, held), "whichever router gets the turn, and whatever it has seen of it"
    assert home_key(turn, 0) == (block, AT_HOME), "nobody holds its beginning: prompts with the same one meet"


def test_a_prompt_without_blocks_or_a_conversation_that_nobody_named_is_at_home_nowhere() -> None:
    assert home_key(replace(request("r", 10), blocks=()), 0) is None
    assert home_key(replace(request("r", 10), session=None, beginning=0), 4) is None
    assert home_key(replace(request("r", 10), session=None, beginning=9), 4) == (9, AT_CONVERSATIONS_HOME)


def test_a_stranger_has_no_part() -> None:
    assert part_of("me", ["others"], ["i0"]) == frozenset()
