"""Tiers in a pool: a hit outside the GPU counts for the time that it saves, by load times learned from first tokens."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source, Tier
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import SHARED_STORE, KvTransferFacts
from fairlead_testing.builders.kv_events import Removed, Stored
from fairlead_testing.builders.routing import dispatches, having_seen, request, table
from fairlead_testing.worlds.watched_policy import Recorded

TOKENS = tuple(range(8_192))
KEYS = block_keys(TOKENS, 512)
SPEED = 6_250
LENGTH = 8_300


def heard(policy: str = "min-ttft", instances: int = 2, store: KvTransferFacts | None = None, **parameters: Any) -> PoolScheduler:
    """Return a pool whose speed is measured and whose instances' events are followed."""
    of = table(instances, policy=policy, window=0, parameters=parameters)
    scheduler = having_seen(PoolScheduler(replace(of, engine=replace(of.engine, kv_transfer=store)), "router-0", 1))
    scheduler.caches.takes_size(512)
    for number in range(instances):
        scheduler.caches.hear(f"i{number:02d}", Source(instance=f"i{number:02d}"), complete=True)
    return scheduler


def held(scheduler: PoolScheduler, instance: str, blocks: int, medium: str, locality: str | None = None) -> None:
    """Send the instance's event that it holds the first blocks of TOKENS in this tier."""
    event = Stored(block_hashes=range(1, blocks + 1), token_ids=TOKENS[: 512 * blocks], block_size=512, medium=medium, locality=locality)
    scheduler.caches.index.apply(Source(instance=instance), [event])


def prompt(name: str, at: float = 0.0) -> RoutingRequest:
    return replace(request(name, LENGTH, at=at), engine_blocks=KEYS)


def loaded(scheduler: PoolScheduler, name: str, at: float, load_seconds: float) -> Dispatch:
    """Send a prompt. Its first token comes after its load and the rest of its prefill."""
    (sent,) = dispatches(scheduler.submit(prompt(name, at), at))
    scheduler.first_token(name, at + load_seconds + sent.miss_tokens / SPEED)
    scheduler.complete(name, at + 10.0, 8, sent.hit_tokens)
    return sent


def test_first_tokens_show_how_long_a_tier_takes_and_say_nothing_of_prefills() -> None:
    scheduler = heard(instances=1)
    held(scheduler, "i00", 16, "CPU")
    before = scheduler._state.prefill_times.samples
    for number in range(4):
        sent = loaded(scheduler, f"r{number}", 20.0 * number, load_seconds=0.4)
        assert sent.hit_tokens == 8_192, "the engine does not compute them"
    figure = scheduler._state.load_times.figure(Tier.HOST, 100.0)
    assert figure.value == pytest.approx(8_192 / 0.4)
    assert scheduler._state.prefill_times.samples == before and scheduler._state.prefill_times.speed == SPEED


@pytest.mark.parametrize("policy", ["min-ttft", "fairlead", "mooncake"])
@pytest.mark.parametrize(("seconds_per_token", "chosen"), [(0.1 / 8_192, "i00"), (1.2 / 8_192, "i01")], ids=["memory", "slow disk"])
def test_a_hit_in_a_slow_tier_counts_for_what_it_saves(policy: str, seconds_per_token: float, chosen: str) -> None:
    """i00 would load 8,192 tokens. i01 has 2,048 tokens on its GPU, and would compute the rest in one second."""
    scheduler = heard(policy)
    held(scheduler, "i00", 16, "STORAGE")
    held(scheduler, "i01", 4, "GPU")
    for number in range(4):
        scheduler._state.load_times.observe((0, 8_192, 0), 8_192 * seconds_per_token, float(number))
    (sent,) = dispatches(scheduler.submit(prompt("r", 5.0), 5.0))
    assert sent.instance == chosen


@pytest.mark.parametrize("policy", ["min-ttft", "fairlead", "mooncake"])
def test_the_record_names_tiers_and_the_sentence_says_them(policy: str) -> None:
    scheduler = heard(policy)
    held(scheduler, "i00", 16, "CPU")
    held(scheduler, "i00", 10, "GPU")
    asked = prompt("r")
    decision = scheduler._state.policy.choose(asked, _view(scheduler, 0.0), 0.0)
    (chosen, *_) = decision.weigh().candidates
    assert (chosen.hit_tokens, chosen.terms["host_tokens"]) == (8_192, 3_072.0) and "load_seconds" not in chosen.terms
    said = explain(_recorded(policy, decision.weigh().rule, chosen))
    assert "Of these, 3,072 in processor memory: their load time is not known yet and was left out." in said
    for number in range(4):
        scheduler._state.load_times.observe((8_192, 0, 0), 0.8192, float(number))
    (chosen, *_) = scheduler._state.policy.choose(asked, _view(scheduler, 4.0), 4.0).weigh().candidates
    assert chosen.terms["load_seconds"] == pytest.approx(0.3072)
    assert chosen.predicted_ttft_seconds == pytest.approx(0.3072 + (LENGTH - 8_192) / SPEED)
    assert "loading them was predicted to take 307 ms" in explain(_recorded(policy, decision.weigh().rule, chosen))


def _view(scheduler: PoolScheduler, now: float) -> Any:
    scheduler._state.view.now = now
    return scheduler._state.view


def _recorded(policy: str, rule: str, chosen: Any) -> Recorded:
    ground = ground_of(BUILT_IN.terms(policy), rule, {})
    return Recorded(
        chosen=chosen.instance,
        rule=ground.rule,
        terms=ground.terms,
        limits=ground.limits,
        candidates=(chosen,),
        passed_over=None,
        prompt_tokens=LENGTH,
    )


def test_what_waits_for_an_instance_counts_with_its_loads() -> None:
    scheduler = heard(instances=1)
    held(scheduler, "i00", 16, "CPU")
    for number in range(4):
        scheduler._state.load_times.observe((8_192, 0, 0), 0.5, float(number))
    scheduler.submit(prompt("r", 5.0), 5.0)
    assert scheduler._state.loads["i00"].pending_prefill_microseconds == pytest.approx(1e6 * (0.5 + (LENGTH - 8_192) / SPEED), rel=1e-5)


STORE = KvTransferFacts(kind=SHARED_STORE, store_tokens=100_000, tokens_per_second=20_000)


def test_what_a_shared_store_holds_counts_for_every_instance_at_its_price() -> None:
    scheduler = heard(store=STORE)
    held(scheduler, "i00", 16, "STORAGE", "REMOTE")
    view = _view(scheduler, 0.0)
    assert view.hit_tokens_everywhere(prompt("r")) == {"i00": 8_192, "i01": 8_192}
    assert view.hit_vector(prompt("r")).tolist() == [8_192, 8_192]
    assert view.loading_vector(prompt("r")).tolist() == pytest.approx([8_192 / 20_000] * 2)
    held(scheduler, "i01", 8, "GPU")
    assert view.loading_vector(prompt("r")).tolist() == pytest.approx([8_192 / 20_000, 4_096 / 20_000])
    (sent,) = dispatches(scheduler.submit(prompt("r"), 0.0))
    assert (sent.instance, sent.hit_tokens) == ("i01", 8_192)
    scheduler.caches.index.apply(Source(instance="i01"), [Removed(block_hashes=[1], medium="STORAGE", locality="REMOTE")])
    assert view.hit_vector(prompt("r")).tolist() == [0, 4_096]


def test_without_events_the_store_holds_what_was_computed_within_its_size() -> None:
    scheduler = heard(store=replace(STORE, store_tokens=2_048))
    for instance in ("i00", "i01"):
        scheduler.caches.ignore(instance)
    first = request("a", 1_100, blocks=(1, 2))
    (sent,) = dispatches(scheduler.submit(first, 0.0))
    scheduler.first_token("a", 1.0)
    view = _view(scheduler, 1.0)
    again = request("b", 1_100, blocks=(1, 2))
    assert view.hit_tokens_everywhere(again) == {"i00": 1_024, "i01": 1_024}
    other = "i01" if sent.instance == "i00" else "i00"
    assert (view.slow_tokens(again, sent.instance), view.slow_tokens(again, other)) == ((0, 0, 0), (0, 0, 1_024))
    for name, blocks in (("c", (3, 4)), ("d", (5, 6))):
        scheduler.submit(request(name, 1_100, blocks=blocks), 2.0)
        scheduler.first_token(name, 3.0)
    assert view.hit_tokens(again, other) == 0, "four newer blocks have filled the store"


def test_a_pool_that_declares_no_store_any_more_counts_nothing_of_it() -> None:
    scheduler = heard(store=STORE)
    held(scheduler, "i00", 16, "STORAGE", "REMOTE")
    of = scheduler.table
    scheduler.update_table(replace(of, version=2, engine=replace(of.engine, kv_transfer=None)), 1.0)
    assert _view(scheduler, 1.0).hit_tokens_everywhere(prompt("r")) == {}


def test_engines_that_read_a_store_are_not_asked_to_hand_blocks_on() -> None:
    scheduler = heard("fairlead", store=STORE)
    held(scheduler, "i00", 16, "STORAGE", "REMOTE")
    assert _view(scheduler, 0.0).fetching(prompt("r")) is None
    (sent,) = dispatches(scheduler.submit(prompt("r"), 0.0))
    assert sent.transfer_from is None and scheduler.table.engine.handing_on is None
