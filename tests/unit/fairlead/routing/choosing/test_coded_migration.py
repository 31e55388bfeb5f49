"""DualMap's migration as in its published code: with thresholds and waits, and to neighbours outside the pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.choosing.coded_migration import CodedRules, coded_moves
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import QueuedMove
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_testing.builders.routing import ScriptedView, entry, request, table
from fairlead_testing.examples import examples

HALF_THE_SLO = CodedRules(threshold_tokens=15_625)
"""The tokens of 2.5 s at 6,250 tokens a second."""


@dataclass(frozen=True)
class Queued:
    """A queued request with the values that a test sets."""

    request: RoutingRequest
    instance: str
    alternate: str | None
    miss_tokens: int


def queued(name: str, at: str, miss: int, tokens: int, arrived: float = 0.0) -> Queued:
    return Queued(request=request(name, tokens, at=arrived), instance=at, alternate=None, miss_tokens=miss)


def moved(
    dispatched: Mapping[str, int],
    queues: Mapping[str, Sequence[Queued]],
    *,
    pair: Sequence[str] = ("i", "j"),
    now: float = 1.0,
    hits: Mapping[tuple[str, str], int] | None = None,
) -> list[QueuedMove]:
    loads = {
        name: InstanceLoad(
            entry=entry(name),
            dispatched_prefill_tokens=tokens,
            pending_prefill_tokens=tokens + sum(one.miss_tokens for one in queues.get(name, ())),
        )
        for name, tokens in dispatched.items()
    }
    view = ScriptedView(table([entry(name) for name in dispatched]), loads, dict(hits or {}))
    return coded_moves(queues, lambda asked: pair, view, now, HALF_THE_SLO)


def told(moves: Sequence[QueuedMove]) -> list[tuple[str, str, str]]:
    return [(move.request, move.source, move.target) for move in moves]


def test_what_gains_most_goes_to_the_pair_and_then_to_the_neighbour() -> None:
    """On i, 20,000 tokens are in flight, and three requests of 12,000 tokens with 2,000 cached there are queued. j can
    take one of them before it is overloaded; k is the neighbour.
    """
    queues = {"i": [queued(f"r{number}", "i", 10_000, 12_000, number / 10) for number in (1, 2, 3)]}
    moves = moved({"i": 20_000, "j": 0, "k": 0}, queues)
    assert told(moves) == [("r3", "i", "j"), ("r2", "i", "k")]
    assert [move.source_ttft_seconds for move in moves] == pytest.approx([8.0, 6.4])
    assert [move.target_ttft_seconds for move in moves] == pytest.approx([1.92, 1.92])


def test_it_ends_when_as_many_tokens_have_left_as_were_above_the_threshold() -> None:
    queues = {"i": [queued(f"r{number}", "i", 6_000, 6_000) for number in range(3)]}
    assert len(moved({"i": 0, "j": 0}, queues)) == 1


def test_a_request_that_waited_for_three_seconds_makes_an_instance_overloaded() -> None:
    queues = {"i": [queued("old", "i", 1_000, 1_000), queued("new", "i", 1_000, 1_000, 2.0)]}
    assert moved({"i": 5_000, "j": 0}, queues, now=2.9) == []
    assert told(moved({"i": 5_000, "j": 0}, queues, now=3.0)) == [("new", "i", "j"), ("old", "i", "j")]


def test_an_instance_whose_oldest_waited_too_long_takes_none() -> None:
    queues = {"i": [queued(f"r{number}", "i", 10_000, 10_000, 9.0) for number in (1, 2)], "j": [queued("old", "j", 10, 10)]}
    assert moved({"i": 20_000, "j": 0}, queues, now=9.5) == []


def test_a_single_queued_request_stays() -> None:
    assert moved({"i": 90_000, "j": 0}, {"i": [queued("r", "i", 10_000, 10_000)]}) == []


def test_nothing_goes_to_where_it_would_come_later() -> None:
    queues = {"i": [queued(f"r{number}", "i", 100, 14_000) for number in (1, 2)]}
    assert moved({"i": 16_000, "j": 15_000}, queues) == []


def test_more_cached_tokens_come_first_where_a_request_goes() -> None:
    """On j, 9,000 of the request's 10,000 tokens are cached, so that it overtakes the 5,000 tokens that wait there."""
    queues = {"i": [queued("r1", "i", 10_000, 10_000), queued("r2", "i", 10_000, 10_000, 0.5)], "j": [queued("q", "j", 5_000, 5_000, 0.9)]}
    (move, *_) = moved({"i": 8_000, "j": 0}, queues, hits={("r2", "j"): 9_000})
    assert (move.request, move.target) == ("r2", "j")
    assert move.target_ttft_seconds == pytest.approx(0.16)


QUEUES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 20_000), st.integers(0, 20_000), st.floats(0, 5)), max_size=25)


@examples(100)
@given(QUEUES, st.tuples(*[st.integers(0, 30_000)] * 4), st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")))
def test_every_move_gains_and_none_is_made_to_an_overloaded_instance(
    drawn: list[tuple[str, int, int, float]], dispatched: tuple[int, ...], pair: tuple[str, str]
) -> None:
    queues: dict[str, list[Queued]] = {}
    for number, (instance, miss, hit, arrived) in enumerate(drawn):
        queues.setdefault(instance, []).append(queued(f"r{number}", instance, miss, miss + hit, arrived))
    moves = moved(dict(zip("abcd", dispatched, strict=True)), queues, pair=pair, now=5.0)
    pending = {name: tokens + sum(one.miss_tokens for one in queues.get(name, ())) for name, tokens in zip("abcd", dispatched, strict=True)}
    known = {one.request.id: one for line in queues.values() for one in line}
    at = {one.request.id: one.instance for one in known.values()}
    here = {one.request.id: one.miss_tokens for one in known.values()}
    for move in moves:
        tokens = known[move.request].request.prompt_tokens
        assert move.target_ttft_seconds < move.source_ttft_seconds and move.source == at[move.request] != move.target
        assert pending[move.target] + tokens <= HALF_THE_SLO.threshold_tokens
        pending[move.source] -= here[move.request]
        pending[move.target] += tokens
        at[move.request], here[move.request] = move.target, tokens
