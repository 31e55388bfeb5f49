from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.choosing.batch_migration import MigrationRules, decode_delay_seconds, plan_moves
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import QueuedMove
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_testing.builders.routing import ScriptedView, cause, entry, request, table
from fairlead_testing.examples import examples

RULES = MigrationRules(slo_seconds=5.0, bottleneck_seconds=3.0)


@dataclass(frozen=True)
class Queued:
    """A queued request with the values that a test sets."""

    request: RoutingRequest
    instance: str
    alternate: str | None
    miss_tokens: int


def pool_view(dispatched: dict[str, int], queues: dict[str, list[Queued]], hits: dict[tuple[str, str], int]) -> ScriptedView:
    loads = {}
    for name, tokens in dispatched.items():
        queue = queues.get(name, [])
        loads[name] = InstanceLoad(
            entry=entry(name),
            dispatched_prefill_tokens=tokens,
            pending_prefill_tokens=tokens + sum(queued.miss_tokens for queued in queue),
            waiting=len(queue),
        )
    return ScriptedView(table([entry(name) for name in dispatched]), loads, hits)


def queued(name: str, at: str, other: str | None, miss: int, tokens: int, arrived: float = 0.0) -> Queued:
    return Queued(request=request(name, tokens, at=arrived), instance=at, alternate=other, miss_tokens=miss)


def worked_example() -> tuple[ScriptedView, dict[str, list[Queued]]]:
    """Return i with 20,000 dispatched tokens and three queued requests of 12,000 tokens, of which 2,000 are cached on
    i.

    None of their tokens is cached on j.
    """
    queues = {"i": [queued(f"r{number}", "i", "j", 10_000, 12_000, float(number)) for number in (1, 2, 3)]}
    return pool_view({"i": 20_000, "j": 0}, queues, {}), queues


def test_the_worked_example_moves_r3_then_r2_and_leaves_r1() -> None:
    view, queues = worked_example()
    moves = plan_moves(["i"], queues, view, 0.0, RULES)
    assert [(move.request, move.source, move.target) for move in moves] == [("r3", "i", "j"), ("r2", "i", "j")]
    assert [move.source_ttft_seconds for move in moves] == pytest.approx([8.0, 6.4])
    assert [move.target_ttft_seconds for move in moves] == pytest.approx([1.92, 3.84])
    assert [move.source_ttft_seconds - move.target_ttft_seconds for move in moves] == pytest.approx([6.08, 2.56])


def test_nothing_moves_when_every_request_meets_the_slo() -> None:
    queues = {"i": [queued("r1", "i", "j", 10_000, 12_000)]}
    assert plan_moves(["i"], queues, pool_view({"i": 20_000, "j": 0}, queues, {}), 0.0, RULES) == ()


def test_a_request_is_not_moved_to_where_it_would_miss_the_slo_too() -> None:
    queues = {"i": [queued("r1", "i", "j", 40_000, 40_000)]}
    assert plan_moves(["i"], queues, pool_view({"i": 0, "j": 0}, queues, {}), 0.0, RULES) == ()


def test_a_request_without_an_alternate_or_with_a_broken_one_stays() -> None:
    queues = {"i": [queued("r1", "i", None, 12_000, 12_000), queued("r2", "i", "j", 12_000, 12_000)]}
    view = pool_view({"i": 20_000, "j": 0}, queues, {})
    view.loads["j"].broken_until = 1.0
    assert plan_moves(["i"], queues, view, 0.0, RULES) == ()


def test_only_as_many_queued_requests_are_examined_as_allowed() -> None:
    view, queues = worked_example()
    assert plan_moves(["i"], queues, view, 0.0, MigrationRules(slo_seconds=5.0, max_examined=1)) == ()


def bottleneck(interval: float) -> Sequence[QueuedMove]:
    """Return a queued request predicted at 1.2 s on an instance whose last first token is `interval` seconds ago.

    The instance j is idle.
    """
    queues = {"i": [queued("r", "i", "j", 7_500, 7_500)]}
    view = pool_view({"i": 0, "j": 0}, queues, {})
    view.loads["i"].last_first_token_at = 100.0
    view.loads["i"].prefilling_since = 90.0
    return plan_moves(["i"], queues, view, 100.0 + interval, RULES)


def test_four_seconds_without_a_first_token_correct_the_prediction_and_migrate() -> None:
    (move,) = bottleneck(4.0)
    assert (move.source_ttft_seconds, move.target_ttft_seconds) == pytest.approx((5.2, 1.2))


def test_two_point_nine_seconds_are_no_bottleneck() -> None:
    assert bottleneck(2.9) == ()


def test_without_the_correction_no_silence_is_a_bottleneck() -> None:
    load = InstanceLoad(entry=entry("i"), waiting=1, prefilling_since=0.0)
    assert decode_delay_seconds(load, 1000.0, MigrationRules(slo_seconds=5.0).bottleneck_seconds, 6250.0) == 0.0


def test_an_instance_that_just_got_work_after_idling_is_no_bottleneck() -> None:
    load = InstanceLoad(entry=entry("i"), waiting=1, last_first_token_at=10.0, prefilling_since=99.0)
    assert decode_delay_seconds(load, 100.0, 3.0, 6250.0) == 0.0
    assert decode_delay_seconds(load, 103.5, 3.0, 6250.0) == 4.5


def test_a_single_long_prefill_is_no_bottleneck_until_it_should_be_over() -> None:
    load = InstanceLoad(entry=entry("i"), waiting=1, dispatched_prefill_tokens=20_480, prefilling_since=0.0)
    assert decode_delay_seconds(load, 3.2, 3.0, 6250.0) == 0.0
    assert decode_delay_seconds(load, 3.4, 3.0, 6250.0) == 3.4


QUEUES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(1, 20_000), st.integers(0, 20_000)), max_size=25)


@examples(100)
@given(QUEUES, st.tuples(*[st.integers(0, 30_000)] * 3))
def test_moves_obey_every_rule(drawn: list[tuple[int, int, int, int]], dispatched: tuple[int, int, int]) -> None:
    names = ("a", "b", "c")
    queues: dict[str, list[Queued]] = {name: [] for name in names}
    hits: dict[tuple[str, str], int] = {}
    for number, (place, step, miss, hit) in enumerate(drawn):
        here, other = names[place], names[(place + step) % 3]
        queues[here].append(queued(f"r{number}", here, other, miss, miss, float(number)))
        hits[f"r{number}", other] = hit
    view = pool_view(dict(zip(names, dispatched, strict=True)), queues, hits)
    moves = plan_moves(names, queues, view, 0.0, RULES)
    everyone = {one.request.id: one for queue in queues.values() for one in queue}
    assert len({move.request for move in moves}) == len(moves), "a request moves at most once per run"
    for move in moves:
        assert (move.source, move.target) == (everyone[move.request].instance, everyone[move.request].alternate)
        assert move.source_ttft_seconds > move.target_ttft_seconds
        assert move.target_ttft_seconds < RULES.slo_seconds
    after: dict[str, list[Queued]] = {name: list(queues[name]) for name in names}
    for move in moves:
        one = everyone[move.request]
        after[move.source].remove(one)
        miss = max(1, one.request.prompt_tokens - view.hit_tokens(one.request, move.target))
        after[move.target].append(queued(move.request, move.target, move.source, miss, one.request.prompt_tokens, one.request.arrived_at))
    assert sorted(one.request.id for queue in after.values() for one in queue) == sorted(everyone), "requests are conserved"
    for name in names:
        late = dispatched[names.index(name)] + sum(one.miss_tokens for one in queues[name]) >= RULES.slo_seconds * 6250
        assert late or not any(move.source == name for move in moves), "nothing leaves an instance where all meet the SLO"


@examples(60)
@given(st.lists(st.integers(1, 15_000), max_size=15), st.integers(0, 30_000), st.integers(0, 30_000))
def test_a_second_run_moves_nothing_back_and_nothing_more(misses: list[int], here: int, there: int) -> None:
    queues = {"i": [queued(f"r{number}", "i", "j", miss, miss, float(number)) for number, miss in enumerate(misses)], "j": []}
    moves = plan_moves(["i"], queues, pool_view({"i": here, "j": there}, queues, {}), 0.0, RULES)
    moved = {move.request for move in moves}
    order = [move.request for move in moves]
    after = {
        "i": [one for one in queues["i"] if one.request.id not in moved],
        "j": [queued(name, "j", "i", misses[int(name[1:])], misses[int(name[1:])], float(name[1:])) for name in order],
    }
    assert plan_moves(["i", "j"], after, pool_view({"i": here, "j": there}, after, {}), 0.0, RULES) == ()


def planned_by_trying_everything(
    overloaded: Sequence[str], queues: Mapping[str, Sequence[Queued]], view: ScriptedView, now: float, rules: MigrationRules
) -> list[QueuedMove]:
    """Return the plan by the published rules: after every move, every request of the queue is examined again."""
    speed = view.table.engine.prefill_tokens_per_second
    moves: list[QueuedMove] = []
    arrived = dict.fromkeys(view.loads, 0)
    for source in overloaded:
        load = view.loads[source]
        delay = decode_delay_seconds(load, now, rules.bottleneck_seconds, speed)
        left = [one for one in queues.get(source, ())[: rules.max_examined] if one.request.id not in {move.request for move in moves}]
        while left and delay + (load.dispatched_prefill_tokens + sum(one.miss_tokens for one in left)) / speed >= rules.slo_seconds:
            found: list[tuple[float, float, int, QueuedMove]] = []
            queue_seconds = delay + (load.dispatched_prefill_tokens + sum(one.miss_tokens for one in left)) / speed
            ahead = load.dispatched_prefill_tokens
            for place, one in enumerate(left):
                ahead += one.miss_tokens
                there = None if one.alternate in (None, source) else view.loads.get(one.alternate or "")
                if there is None or not there.is_candidate(now):
                    continue
                name = there.entry.id
                here_ttft = delay + ahead / speed
                miss = max(1, one.request.prompt_tokens - view.hit_tokens(one.request, name))
                pending = there.pending_prefill_tokens + arrived[name] + miss
                there_ttft = decode_delay_seconds(there, now, rules.bottleneck_seconds, speed) + pending / speed
                move = QueuedMove(
                    request=one.request.id,
                    source=source,
                    target=name,
                    cause=cause("hotspot", queue_seconds, rules.slo_seconds, "seconds"),
                    source_ttft_seconds=here_ttft,
                    target_ttft_seconds=there_ttft,
                )
                if here_ttft > there_ttft and there_ttft < rules.slo_seconds:
                    found.append((there_ttft - here_ttft, one.request.arrived_at, place, move))
            if not found:
                break
            *_, place, move = min(found, key=lambda one: one[:3])
            moves.append(move)
            arrived[source] -= left[place].miss_tokens
            arrived[move.target] += max(1, left[place].request.prompt_tokens - view.hit_tokens(left[place].request, move.target))
            del left[place]
    return moves


LARGE_QUEUES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 9_000), st.integers(0, 9_000), st.integers(0, 5)), max_size=30
)


@examples(300)
@given(
    LARGE_QUEUES,
    st.tuples(*[st.sampled_from([0, 5_000, 20_000, 31_249, 40_000])] * 4),
    st.tuples(*[st.sampled_from([None, 0.0, 96.0])] * 4),
    st.permutations(["a", "b", "c", "d", "a"]),
    st.sampled_from([3, 256]),
)
def test_moves_are_those_found_by_trying_everything_after_every_move(
    drawn: list[tuple[int, int, int, int, int]],
    dispatched: tuple[int, ...],
    since: tuple[float | None, ...],
    overloaded: list[str],
    max_examined: int,
) -> None:
    names = ("a", "b", "c", "d")
    queues: dict[str, list[Queued]] = {name: [] for name in names}
    hits: dict[tuple[str, str], int] = {}
    for number, (place, step, miss, hit, arrived) in enumerate(drawn):
        here, other = names[place], None if step == 4 else names[(place + step) % 4]
        queues[here].append(queued(f"r{number}", here, other, miss, miss, float(arrived)))
        hits[f"r{number}", other or ""] = hit
    view = pool_view(dict(zip(names, dispatched, strict=True)), queues, hits)
    for name, at in zip(names, since, strict=True):
        view.loads[name].prefilling_since = at
    view.now = 100.0
    view.loads["d"].broken_until = 50.0 if max_examined == 3 else 200.0
    rules = MigrationRules(slo_seconds=5.0, max_examined=max_examined)
    assert list(plan_moves(overloaded, queues, view, 100.0, rules)) == planned_by_trying_everything(overloaded, queues, view, 100.0, rules)


def test_queues_are_not_put_in_order_when_nobody_could_take_a_request() -> None:
    """Past saturation every decision starts a run. If nothing can be gained, it must not cost a look at every queue."""

    class Untouchable(dict[str, list[Queued]]):
        def get(self, *_: object) -> list[Queued]:
            raise AssertionError("a queue was looked at")

    _, queues = worked_example()
    view = pool_view({"i": 20_000, "j": 31_250}, queues, {})
    assert plan_moves(["i"], Untouchable(queues), view, 0.0, RULES) == ()
    view.loads["j"].pending_prefill_tokens -= 2
    with pytest.raises(AssertionError, match="looked at"):
        plan_moves(["i"], Untouchable(queues), view, 0.0, RULES)
