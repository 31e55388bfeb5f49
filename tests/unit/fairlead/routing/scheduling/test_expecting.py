"""Blocks that count as held where their prompt was sent, before the engine's events report them."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.kv_events import Removed, Stored
from fairlead_testing.builders.routing import dispatches, request, table

TOKENS = tuple(range(2_048))
KEYS = block_keys(TOKENS, 512)
A, B = Source(instance="i00"), Source(instance="i01")


def heard(instances: int = 1, **parameters: Any) -> PoolScheduler:
    """Return a pool whose instances' events are followed, and have reported nothing yet."""
    given = {"speculative_seconds": 2.0} | parameters
    scheduler = PoolScheduler(table(instances, policy="min-ttft", window=0, parameters=given), "router-0", 1)
    scheduler.caches.takes_size(512)
    for name in ("i00", "i01")[:instances]:
        scheduler.caches.hear(name, Source(instance=name), complete=True)
    return scheduler


def prompt(name: str, at: float = 0.0) -> RoutingRequest:
    return replace(request(name, 2_100, at=at), engine_blocks=KEYS)


def expected_on(scheduler: PoolScheduler, source: Source = A) -> int:
    return scheduler.caches.index.match(source, KEYS)


def test_what_was_sent_is_expected_and_the_next_prompt_knows_that_it_rests_on_a_guess() -> None:
    scheduler = heard()
    (first,) = dispatches(scheduler.submit(prompt("a"), 0.0))
    (second,) = dispatches(scheduler.submit(prompt("b"), 0.1))
    assert (first.hit_tokens, first.by_guess) == (0, False)
    assert (second.hit_tokens, second.by_guess) == (2_048, True)
    assert scheduler.caches.index.blocks(A) == {}, "told of nothing"


def test_nothing_is_expected_unless_asked_for() -> None:
    scheduler = heard(speculative_seconds=0.0)
    scheduler.submit(prompt("a"), 0.0)
    (second,) = dispatches(scheduler.submit(prompt("b"), 0.1))
    assert (second.hit_tokens, second.by_guess, expected_on(scheduler)) == (0, False, 0)


def test_it_is_expected_while_it_is_computed_and_so_long_after() -> None:
    scheduler = heard()
    scheduler.submit(prompt("a"), 0.0)
    scheduler.tick(30.0)
    assert expected_on(scheduler) == 4, "a long prefill"
    scheduler.first_token("a", 31.0)
    scheduler.tick(32.9)
    assert expected_on(scheduler) == 4
    scheduler.tick(33.0)
    assert expected_on(scheduler) == 0


def test_once_an_event_tells_of_a_block_only_events_count() -> None:
    scheduler = heard()
    index = scheduler.caches.index
    scheduler.submit(prompt("a"), 0.0)
    index.apply(A, [Stored(block_hashes=[1, 2], token_ids=TOKENS[:1_024], block_size=512)])
    assert (expected_on(scheduler), index.match(A, KEYS, expected=False)) == (4, 2)
    index.apply(A, [Removed(block_hashes=[2])])
    assert expected_on(scheduler) == 1, "evicted, whatever was expected"
    scheduler.first_token("a", 1.0)
    scheduler.tick(5.0)
    assert expected_on(scheduler) == 1


@pytest.mark.parametrize("ends", ["cancel", "fail", "decline"])
def test_it_is_taken_back_when_the_request_ends_before_its_prompt_is_computed(ends: str) -> None:
    scheduler = heard()
    scheduler.submit(prompt("a"), 0.0)
    scheduler.submit(prompt("b"), 0.0)
    getattr(scheduler, ends)("a", 0.5)
    assert expected_on(scheduler) == 4, "b will bring them too"
    getattr(scheduler, ends)("b", 0.5)
    assert expected_on(scheduler) == 0


def test_a_retry_takes_the_expectation_along() -> None:
    scheduler = heard(instances=2)
    (sent,) = dispatches(scheduler.submit(prompt("a"), 0.0))
    scheduler.retry("a", 0.5, sent.instance)
    first, second = (A, B) if sent.instance == "i00" else (B, A)
    assert (expected_on(scheduler, first), expected_on(scheduler, second)) == (0, 4)


def test_a_file_of_llm_d_turns_it_on() -> None:
    scheduler = heard(speculative_seconds=0.0)
    precise = {"type": "precise-prefix-cache-scorer", "parameters": {"speculativeIndexing": True, "speculativeTTL": "500ms"}}
    config = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [precise]}
    pool = table(1, policy="endpoint-picker", window=0, parameters={"config": config}, version=2)
    scheduler.update_table(pool, 0.0)
    scheduler.submit(prompt("a"), 0.0)
    scheduler.first_token("a", 1.0)
    scheduler.tick(1.4)
    assert expected_on(scheduler) == 4
    scheduler.tick(1.5)
    assert expected_on(scheduler) == 0
    quiet = config | {"plugins": [{"type": "precise-prefix-cache-scorer", "parameters": {"speculativeTTL": "500ms"}}]}
    scheduler.update_table(replace(pool, version=3, routing=replace(pool.routing, parameters={"config": quiet})), 2.0)
    scheduler.submit(prompt("b", 2.0), 2.0)
    assert expected_on(scheduler) == 0, "off by default, as in llm-d"
