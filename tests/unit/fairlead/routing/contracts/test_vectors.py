"""The live view's vectors always equal the values computed afresh from the loads and the index."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState, Role
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import Source
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.vectors import PoolVectors, highest, lowest, normalised
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.knowledge.load_times import LoadTimes
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead.routing.knowledge.transfer_times import TransferTimes
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead_testing.builders.routing import POOL, entry, request, table
from fairlead_testing.examples import examples

NAMES = tuple(f"i{number:02d}" for number in range(14))
STEP = st.tuples(st.sampled_from(["count", "first", "end", "insert", "drop", "break", "role"]), st.sampled_from(NAMES), st.integers(0, 3))


class Stage:
    """A live view over real accounting and a real index."""

    def __init__(self, **modelled: Any) -> None:
        self.table = table([entry(name) for name in NAMES], block_tokens=100, **modelled)
        self.accounting = Accounting(lambda prompt, hit: (prompt - hit) / 1000)
        for one in self.table.instances:
            self.accounting.loads[one.id] = InstanceLoad(entry=one)
        self.index = PrefixIndex(6)
        times = PrefillTimes(self.table.engine), DecodeTimes(self.table.engine), TransferTimes(), LoadTimes()
        bindings = SessionBindings(POOL, 60.0, self.accounting.loads)
        self.view = LiveView(self.table, self.accounting.loads, self.index, EngineCaches(), bindings, self.accounting.changed, *times)
        self.tracked: list[TrackedRequest] = []
        self.counted = 0

    def do(self, action: str, name: str, number: int) -> None:
        accounting = self.accounting
        if action == "count":
            self.counted += 1
            one = TrackedRequest(request=request(f"r{self.counted}", 500), submitted_at=0.0)
            accounting.admit(one)
            accounting.enqueue(one, name, 100 * number, 0.0)
            if number % 2:
                accounting.dispatch(one, 0, 0.0)
            self.tracked.append(one)
        elif action == "first":
            for one in self.tracked:
                if one.instance == name and one.dispatched_at is not None and not one.first_token_at:
                    one.first_token_at = 1.0
                    accounting.prefilled(one, 1.0)
        elif action == "end" and self.tracked:
            accounting.end(self.tracked.pop(number % len(self.tracked)))
        elif action == "insert":
            self.index.insert(name, tuple(range(number, 4)) if number else (7, 8))
        elif action == "drop":
            self.index.drop(name)
        elif action == "break":
            accounting.loads[name].broken_until = float(number)
            self.view.invalidate()
        elif action == "role":
            load = accounting.loads[name]
            role = (Role.BOTH, Role.PREFILL, Role.DECODE, Role.BOTH)[number]
            state = InstanceState.DRAINING if number == 3 else InstanceState.SERVING
            load.entry = replace(load.entry, role=role, state=state)
            self.view.invalidate()


@examples(150)
@given(st.lists(STEP, max_size=40))
def test_kept_vectors_equal_fresh_ones_after_any_history(steps: list[tuple[str, str, int]]) -> None:
    stage = Stage()
    asked = request("asked", 450, blocks=(1, 2, 3))
    for action, name, number in steps:
        stage.do(action, name, number)
        view = stage.view
        view.now += 0.05
        candidates = view.candidates()
        assert all(load.is_candidate(view.now) for load in candidates)
        kept, fresh = view.vectors(), PoolVectors.of(tuple(candidates), view.table.engine.kv_cache_tokens)
        assert kept.loads == tuple(candidates)
        for field in ("pending", "pending_microseconds", "decode_tokens", "requests", "queued"):
            assert getattr(kept, field).tolist() == getattr(fresh, field).tolist()
        hits = view.hit_vector(asked)
        assert hits.tolist() == [view.hit_tokens(asked, load.entry.id) for load in candidates]
        assert dict(view.hit_tokens_everywhere(asked)).items() >= {
            (load.entry.id, int(hit)) for load, hit in zip(candidates, hits, strict=True) if hit
        }
        assert kept.done_seconds(view.now).tolist() == [load.done_seconds(view.now) for load in candidates]
        seconds = view.ttft_vector(asked, hits)
        assert seconds.tolist() == [view.predicted_ttft_seconds(asked, load.entry.id) for load in candidates]


def test_a_prefill_under_way_counts_with_what_is_left_of_it() -> None:
    """Two prefills of 5,000 tokens take 0.8 s each by the table. The second begins with the first one's first token."""
    stage, asked = Stage(), request("asked", 6250)
    stage.accounting = Accounting(lambda prompt, hit: (prompt - hit) / 6250)
    stage.accounting.loads = {"i00": stage.view.load("i00") or InstanceLoad(entry=entry("i00"))}
    for name in ("a", "b"):
        one = TrackedRequest(request=request(name, 5000), submitted_at=0.0)
        stage.accounting.admit(one)
        stage.accounting.enqueue(one, "i00", 0, 0.0)
        stage.accounting.dispatch(one, 0, 0.0)
        stage.tracked.append(one)

    def predicted(now: float) -> float:
        stage.view.now = now
        return round(stage.view.predicted_ttft_seconds(asked, "i00"), 6)

    assert [predicted(now) for now in (0.0, 0.5, 0.8, 1.5)] == [2.6, 2.1, 1.8, 1.8], "what takes longer than predicted has nothing left"
    stage.accounting.prefilled(stage.tracked[0], 1.5)
    assert [predicted(now) for now in (1.5, 1.8, 9.0)] == [1.8, 1.5, 1.0]
    stage.accounting.end(stage.tracked[1])
    assert predicted(9.0) == 1.0


def test_the_load_of_a_pool_is_what_comes_and_what_decodes_need() -> None:
    """Fourteen instances get 2.8 s of prefill a second. On half of them, decodes need 20 of 100 ms."""
    stage = Stage(decode_base_seconds=0.02)
    for number, name in enumerate(NAMES):
        stage.do("count", name, 1)
        if number % 2:
            stage.do("first", name, 0)
    for second in range(10):
        stage.view.now = float(second)
        stage.view.offered.add(2.8, second)
    assert stage.view.pool_load() == pytest.approx(0.2 + 0.1, abs=0.03)


def test_a_router_takes_the_others_to_send_and_decode_as_much_as_itself() -> None:
    stage = Stage(decode_base_seconds=0.01, decode_seconds_per_request=0.005)
    stage.do("count", "i00", 1)
    stage.do("first", "i00", 0)
    stage.view.now = 10.0
    stage.view.offered.add(2.8, 10.0)
    load = stage.view.load("i00")
    assert load is not None
    alone = stage.view.offered.per_second(10.0) / len(NAMES)
    assert stage.view.pool_load() == pytest.approx(alone + 0.15 / len(NAMES))
    stage.view.routers = 3
    assert stage.view.decode_share(load) == pytest.approx(0.25), "three decode there"
    stage.accounting.changed.add("i00")
    assert stage.view.pool_load() == pytest.approx(3 * alone + 0.25 / len(NAMES))


def test_a_prefix_held_by_many_is_found_on_each() -> None:
    stage = Stage()
    for name in NAMES:
        stage.index.insert(name, (1, 2))
    stage.index.insert("i03", (1, 2, 3))
    hits = dict(zip(NAMES, stage.view.hit_vector(request("r", 450, blocks=(1, 2, 3))).tolist(), strict=True))
    assert hits == dict.fromkeys(NAMES, 200) | {"i03": 300}


def test_events_go_before_own_history_wherever_candidates_stand() -> None:
    stage = Stage()
    caches, asked = stage.view.caches, replace(request("r", 450, blocks=(1, 2, 3)), engine_blocks=(7, 8, 9, 10))
    assert caches.takes_size(100)
    for name in NAMES:
        stage.index.insert(name, (1, 2))
        caches.index.hold(Source(instance=name), 70, 7)
        caches.hear(name, Source(instance=name), complete=True)
    caches.index.hold(Source(instance="i03"), 80, 8)
    caches.ignore("i04")
    expected = dict.fromkeys(NAMES, 100) | {"i03": 200, "i04": 200}
    assert dict(zip(NAMES, stage.view.hit_vector(asked).tolist(), strict=True)) == expected
    assert stage.view.block_tokens(asked) == 100
    stage.do("break", NAMES[0], 5)
    assert stage.view.hit_vector(asked).tolist() == [expected[name] for name in NAMES[1:]]


def test_hits_are_counted_in_routing_blocks_while_nothing_is_told_of_a_request() -> None:
    stage = Stage()
    known = replace(request("r", 450, blocks=(1, 2, 3)), engine_blocks=(7, 8, 9, 10))
    own = stage.view.table.engine.block_tokens
    assert stage.view.block_tokens(known) == own
    stage.view.caches.takes_size(16)
    stage.view.caches.hear(NAMES[0], Source(instance=NAMES[0]), complete=True)
    assert (stage.view.block_tokens(known), stage.view.block_tokens(request("r", 450, blocks=(1, 2, 3)))) == (16, own)


def test_picking_is_stable_and_ties_go_by_the_next_vector() -> None:
    assert lowest(np.array([3, 1, 1, 2]), 3) == [1, 2, 3]
    assert lowest(np.array([3, 1, 1, 2]), 2, np.array([0, 9, 4, 0])) == [2, 1]
    assert highest(np.array([3.0, 1.0, 3.0]), 2, np.array([5, 0, 4])) == [2, 0]


def test_normalising_nothing_gives_nothing() -> None:
    assert normalised(np.array([0, 0])).tolist() == [0.0, 0.0]
    assert normalised(np.array([1, 4])).tolist() == [0.25, 1.0]
