"""The last prompts of sessions: one for each, within a limit of memory; the most valuable are kept."""

from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import PoolKey
from fairlead_router.pools.kept_prompts import IDLE_SECONDS, MOST_RANKED, KeptPrompt, KeptPrompts
from fairlead_router.protocols.dialects import Dialect
from fairlead_testing.examples import examples

POOL, OTHER = PoolKey(namespace="default", name="chat"), PoolKey(namespace="default", name="other")


def prompt(at: float, session: str | None, blocks: tuple[int, ...] = (1,), size: int = 1000, instance: str = "i0") -> KeptPrompt:
    request = RoutingRequest(id=f"r{at}", arrived_at=at, prompt_tokens=size, blocks=blocks, first_bytes_hash=1, session=session)
    return KeptPrompt(request, b"head", b"x" * size, Dialect.OPENAI, "m", instance, at)


def test_a_turn_takes_the_place_of_the_one_before_it_by_its_sessions_name_or_by_how_it_begins() -> None:
    kept = KeptPrompts(10**6)
    kept.keep(POOL, prompt(1.0, "s"))
    kept.keep(POOL, prompt(2.0, "s", blocks=(1, 2)))
    kept.keep(POOL, prompt(3.0, None, blocks=(7, 8)))
    kept.keep(POOL, prompt(4.0, None, blocks=(7, 8, 9)))
    kept.keep(POOL, prompt(5.0, None, blocks=(7, 11)))
    assert [one.at for one in kept.of(POOL)] == [2.0, 4.0, 5.0]


def test_only_sessions_of_the_instances_that_leave_are_handed_over_and_the_one_that_spoke_last_first() -> None:
    kept = KeptPrompts(10**6)
    for number, instance in enumerate(("i0", "i1", "i0")):
        kept.keep(POOL, prompt(float(100 * number), f"s{number}", instance=instance))
    kept.keep(OTHER, prompt(300.0, "s0"))
    assert [one.request.session for _, one in kept.worths(POOL, {"i0"}, 300.0)] == ["s2", "s0"]
    next(kept.of(POOL)).given_up = True
    assert [one.request.session for _, one in kept.worths(POOL, {"i0"}, 300.0)] == ["s2"]
    assert kept.worths(PoolKey(namespace="default", name="third"), {"i0"}, 300.0) == []


def test_of_very_many_sessions_those_that_spoke_last_are_compared() -> None:
    kept = KeptPrompts(10**8)
    for number in range(MOST_RANKED + 50):
        kept.keep(POOL, prompt(float(number), f"s{number}", instance=f"i{number % 2}" if number < 100 else "i0"))
    found = {one.request.session for _, one in kept.worths(POOL, {"i0"}, 1000.0)}
    assert found == {f"s{number}" for number in range(100, MOST_RANKED + 50)} | {f"s{number}" for number in range(0, 100, 2)}
    kept.keep(POOL, prompt(1000.0, "newest"))
    found = {one.request.session for _, one in kept.worths(POOL, {"i0"}, 1001.0)}
    assert (len(found), "newest" in found, "s0" in found) == (MOST_RANKED, True, False)


def test_a_session_without_a_turn_for_an_hour_is_given_up_and_so_is_a_pool() -> None:
    kept = KeptPrompts(10**6)
    kept.keep(POOL, prompt(0.0, "s0"))
    kept.keep(POOL, prompt(100.0, "s1"))
    kept.expire(IDLE_SECONDS)
    assert [one.request.session for one in kept.of(POOL)] == ["s1"]
    kept.forget(POOL)
    assert (kept.bytes, list(kept.of(POOL))) == (0, [])


def test_what_is_counted_of_a_prompt_is_the_memory_that_it_takes() -> None:
    keys = tuple(2**63 + number for number in range(8000))
    ours, engines = keys, tuple(key + 8000 for key in keys)
    request = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1, blocks=ours, first_bytes_hash=1, engine_blocks=engines)
    kept = KeptPrompt(request, b"", b"", Dialect.OPENAI, "m", "i0", 0.0)
    taken = sum(getsizeof(blocks) + sum(map(getsizeof, blocks)) for blocks in (ours, engines))
    assert kept.bytes >= taken


def test_nothing_is_kept_of_a_pool_that_is_deleted() -> None:
    kept = KeptPrompts(10**6)
    kept.keep(POOL, prompt(0.0, "s0"))
    kept.keep(OTHER, prompt(0.0, "s0"))
    kept.keep_only([OTHER])
    assert (len(list(kept.of(POOL))), len(list(kept.of(OTHER)))) == (0, 1)
    assert kept.bytes == next(kept.of(OTHER)).bytes


@given(
    turns=st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 40_000), st.booleans()), max_size=40),
    most=st.integers(0, 60_000),
)
@examples(100)
def test_memory_is_bounded_whatever_comes(turns: list[tuple[str | None, int, bool]], most: int) -> None:
    kept = KeptPrompts(most)
    for at, (session, size, of_other) in enumerate(turns):
        kept.keep(OTHER if of_other else POOL, prompt(float(at), session, blocks=(at,), size=size))
        assert kept.bytes <= most
        assert kept.bytes == sum(one.bytes for pool in (POOL, OTHER) for one in kept.of(pool))
    kept.expire(1e9)
    assert kept.bytes == 0
