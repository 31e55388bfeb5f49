"""How many tokens of a prompt an instance holds: from events where they are complete, otherwise from own history."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import Source, Tier
from fairlead_testing.builders.kv_events import Stored

A, B = Source(instance="a"), Source(instance="b")
TOKENS = tuple(range(100))


@dataclass(frozen=True)
class Prompt:
    prompt_tokens: int
    engine_blocks: tuple[int, ...]


def prompt(tokens: int, known: int | None = None) -> Prompt:
    """Return a prompt of the first `tokens` of TOKENS, of which the first `known` are known."""
    keys = block_keys(TOKENS[: tokens if known is None else known], 4)
    return Prompt(tokens, keys[: (tokens - 1) // 4])


def caches(*, a: int = 0, complete: bool = True) -> EngineCaches:
    """Return caches in which `a` holds this many blocks of TOKENS and `b` holds none. Events of both are received."""
    made = EngineCaches()
    assert made.takes_size(4)
    for source, blocks in ((A, a), (B, 0)):
        if blocks:
            made.index.apply(source, [Stored(block_hashes=range(1, blocks + 1), token_ids=TOKENS[: 4 * blocks])])
        made.hear(source.instance, source, complete=complete)
    return made


def test_events_are_believed_against_own_history() -> None:
    heard = caches(a=3)
    assert heard.hit_tokens(prompt(40), "a", 36) == 12
    assert heard.hit_tokens(prompt(40), "b", 36) == 0
    assert heard.hits_everywhere(prompt(40), {"a": 36, "b": 36, "c": 8}) == {"a": 12, "b": 0, "c": 8}


def test_an_instance_that_is_not_heard_is_left_to_own_history() -> None:
    heard = caches(a=3)
    heard.ignore("a")
    assert heard.hit_tokens(prompt(40), "a", 36) == 36
    assert heard.hits_everywhere(prompt(40), {"a": 36}) == {"a": 36, "b": 0}


def test_a_prompt_of_unknown_tokens_is_left_to_own_history() -> None:
    heard = caches(a=3)
    assert heard.hit_tokens(prompt(40, known=0), "a", 20) == 20
    assert heard.hits_everywhere(prompt(40, known=0), {"a": 20}) == {"a": 20}


def test_behind_the_tokens_that_are_known_own_history_goes_on() -> None:
    heard = caches(a=8)
    assert heard.hit_tokens(prompt(40, known=20), "a", 32) == 32
    assert heard.hit_tokens(prompt(40, known=20), "a", 8) == 20
    assert caches(a=3).hit_tokens(prompt(40, known=20), "a", 32) == 12, "the fourth block is known not to be there"


def test_at_least_one_token_is_computed() -> None:
    assert caches(a=10).hit_tokens(prompt(40), "a", 0) == 36


def test_what_was_stored_before_anybody_listened_is_believed_of_own_history() -> None:
    heard = caches(a=3, complete=False)
    assert heard.hit_tokens(prompt(40), "a", 32) == 32
    heard.hear("a", A, complete=True)
    assert heard.hit_tokens(prompt(40), "a", 32) == 12


def test_each_of_an_engines_ranks_holds_what_it_tells_itself() -> None:
    heard = caches(a=6)
    heard.ignore("a")
    heard.hear("a#0", A, complete=True)
    heard.hear("a#1", Source(instance="a", rank=1), complete=True)
    assert [heard.hit_tokens(prompt(40), target, 36) for target in ("a#0", "a#1", "a")] == [24, 0, 36]
    assert heard.hits_everywhere(prompt(40), {}) == {"a#0": 24, "a#1": 0, "b": 0}


def test_the_first_block_size_is_the_pools_until_nobody_has_it() -> None:
    heard = caches(a=1)
    assert not heard.takes_size(8)
    heard.index.clear(A)
    assert heard.takes_size(8) and heard.block_tokens == 8


SOURCES = tuple(Source(instance=name, rank=rank) for name in "abcdefghijkl" for rank in range(3))
STEP = st.one_of(
    st.tuples(st.just("hold"), st.sampled_from(SOURCES), st.integers(1, 10), st.sampled_from(["GPU", "host", "disk", "expected"])),
    st.tuples(st.just("drop"), st.sampled_from(SOURCES), st.integers(0, 10), st.just("")),
    st.tuples(st.just("clear"), st.sampled_from(SOURCES), st.integers(0, 10), st.just("")),
    st.tuples(st.just("hear"), st.sampled_from(SOURCES), st.integers(1, 3), st.sampled_from(["complete", ""])),
    st.tuples(st.just("ignore"), st.sampled_from(SOURCES), st.integers(0, 10), st.just("")),
)


@given(st.lists(STEP, max_size=40), st.integers(1, 45), st.integers(0, 44), st.lists(st.integers(0, 44), min_size=12, max_size=12))
def test_the_hits_of_all_are_those_of_each(
    steps: list[tuple[str, Source, int, str]], tokens: int, known: int, remembered: list[int]
) -> None:
    """This holds for any order in which sources, ranks and tiers appear and disappear."""
    made = EngineCaches()
    assert made.takes_size(4)
    keys = block_keys(TOKENS, 4)
    instances = tuple("abcdefghijkl")
    asked = prompt(tokens, min(known, tokens))
    for action, source, number, word in steps:
        if action == "hold" and word == "expected":
            made.index.expect(source, keys[:number], f"{number}")
        elif action == "hold":
            for place in range(number):
                made.index.hold(source, place, keys[place], tier=Tier(word))
        elif action == "drop":
            made.index.drop(source)
        elif action == "clear":
            made.index.clear(source)
        elif action == "hear":
            made.hear(source.instance, source, complete=bool(word))
        else:
            made.ignore(source.instance)
        by_own_history = dict(zip(instances, remembered, strict=True))
        each = [made.hit_tokens(asked, instance, by_own_history[instance]) for instance in instances]
        everywhere = made.hits_everywhere(asked, by_own_history)
        assert made.hit_vector(asked, instances, np.array(remembered)).tolist() == each
        slow = [(place, made.slow_tokens(asked, instance)) for place, instance in enumerate(instances)]
        assert dict(made.slow_rows(asked, instances)) == {place: tokens for place, tokens in slow if any(tokens)}
        assert [everywhere[instance] for instance in instances] == each
