"""Policies that only advise: they change nothing, even if they raise, and their answers are recorded."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.reports.decisions import DecisionRecord
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling import kept_decisions
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.shadows import ASKED_PER_MINUTE
from fairlead.tables import RoutingFacts, RoutingTable, ShadowPolicy, SloFacts
from fairlead_testing.builders.routing import dispatches, entries, having_seen, request, table
from fairlead_testing.examples import examples

BOTH = {Role.BOTH}
ADVISING = sorted(
    name
    for name in BUILT_IN.names
    if not BUILT_IN.learns(RoutingFacts(policy=name)) and not BUILT_IN.entry(name).needs_roles and name != "endpoint-picker"
)


def pool(policy: str, *shadows: str, instances: int = 3, **more: Any) -> RoutingTable:
    made = table(instances, policy=policy, **more)
    return replace(made, routing=replace(made.routing, shadows=tuple(ShadowPolicy(policy=one) for one in shadows)))


def scheduler(of_table: RoutingTable, rate: float = 1.0) -> PoolScheduler:
    return having_seen(PoolScheduler(of_table, "router-0", 0, sample_rate=rate))


def serve(one: PoolScheduler, name: str, at: float, blocks: tuple[int, ...] = (), session: str | None = None) -> str:
    """Serve a request at once and return its instance."""
    sent = dispatches(one.submit(request(name, 512 * len(blocks) or 1024, blocks=blocks, session=session, at=at), at))
    one.first_token(name, at + 0.01)
    one.complete(name, at + 0.02, 10, None)
    return sent[0].instance if sent else ""


def recorded(one: PoolScheduler) -> list[DecisionRecord]:
    return list(one.take_records(1e6, final=True).decisions)


def test_the_answer_of_a_shadow_is_recorded_with_the_predictions_for_both_targets() -> None:
    chat = scheduler(pool("round-robin", "cache-affinity", "min-ttft"))
    first = serve(chat, "a", 1.0, blocks=(1, 2, 3, 4))
    second = serve(chat, "b", 2.0, blocks=(1, 2, 3, 4))
    (one,) = [found for found in recorded(chat) if found.request == "b"]
    affine, fastest = one.shadows
    assert second != first
    assert (affine.policy, fastest.policy) == ("cache-affinity", "min-ttft")
    assert (fastest.target, fastest.alike) == (first, False), "it holds the prompt"
    assert fastest.hit_tokens > fastest.chosen_hit_tokens == 0
    assert fastest.predicted_ttft_seconds < fastest.chosen_ttft_seconds


OF_THE_VIEW = ("cache-load-linear", "dualmap", "dynamo", "ear", "fairlead", "lmetric", "min-ttft", "mooncake")
"""Policies whose choice depends only on the view, not on random numbers or on earlier choices."""


@pytest.mark.parametrize("policy", OF_THE_VIEW)
def test_a_policy_beside_itself_decides_alike(policy: str) -> None:
    chat = scheduler(pool(policy, policy))
    for number in range(12):
        serve(chat, f"r{number}", float(number), blocks=tuple(range(10 * (number % 3), 10 * (number % 3) + 4)), session=f"s{number % 4}")
    assert all(choice.alike for one in recorded(chat) for choice in one.shadows)


@examples(60)
@given(
    policy=st.sampled_from(ADVISING),
    shadows=st.lists(st.sampled_from(ADVISING), min_size=1, max_size=2, unique=True),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.booleans()), min_size=1, max_size=25),
)
def test_what_a_pool_decides_does_not_depend_on_its_shadows(policy: str, shadows: list[str], steps: list[tuple[int, int, bool]]) -> None:
    plain, shadowed = scheduler(pool(policy)), scheduler(pool(policy, *shadows))
    for number, (conversation, turns, ends) in enumerate(steps):
        at, name = number * 0.05, f"r{number}"
        blocks = tuple(range(100 * conversation, 100 * conversation + 2 * turns))
        asked = request(name, 512 * len(blocks), blocks=blocks, session=f"s{conversation}" if conversation else None, at=at)
        assert plain.submit(asked, at) == shadowed.submit(asked, at)
        for one in (plain, shadowed):
            one.first_token(name, at + 0.01)
            if ends:
                one.complete(name, at + 0.02, 10, None)
    assert plain.tick(100.0) == shadowed.tick(100.0)
    kept, advised = recorded(plain), recorded(shadowed)
    assert all([one.policy for one in record.shadows] == shadows for record in advised)
    assert kept == [replace(one, shadows=()) for one in advised]


class Broken:
    """A user's policy that raises in `where`."""

    name = "broken"

    def __init__(self, where: str) -> None:
        self._where = where

    def choose(self, *_: object) -> Any:
        if self._where == "choose":
            raise RuntimeError("somebody's own")
        raise AssertionError("it was asked although it failed at the table")

    def table_changed(self, table: RoutingTable) -> None:
        if self._where == "table":
            raise RuntimeError("somebody's own")


@pytest.mark.parametrize("where", ["choose", "table"])
def test_a_shadow_that_raises_is_recorded_as_failed_and_the_request_is_served(where: str) -> None:
    entry = replace(BUILT_IN.entry("min-ttft"), name="broken", build=lambda parameters, seed: Broken(where))
    policies = BUILT_IN.extended({"broken": lambda: entry})
    chat = having_seen(PoolScheduler(pool("min-ttft", "broken", "random"), "router-0", 0, sample_rate=1.0, policies=policies))
    assert serve(chat, "a", 1.0)
    (one,) = recorded(chat)
    assert one.shadows[0].target is None
    assert one.shadows[1].target is not None


@pytest.mark.parametrize("unusable", ["lodestar", "no-such-policy"])
def test_a_router_that_cannot_ask_a_shadow_records_that_it_failed(unusable: str) -> None:
    chat = scheduler(pool("min-ttft", unusable))
    assert serve(chat, "a", 1.0)
    assert [choice.target for one in recorded(chat) for choice in one.shadows] == [None]


def test_shadows_are_asked_only_of_the_sample_and_so_often_a_minute() -> None:
    sampled = scheduler(pool("min-ttft", "random"), rate=0.25)
    for number in range(100):
        serve(sampled, f"r{number}", 1.0 + number)
    asked = [one for one in recorded(sampled) if one.shadows]
    assert 10 < len(asked) < 45
    busy = scheduler(pool("min-ttft", "random"))
    for number in range(300):
        serve(busy, f"r{number}", 1.0 + number / 1e6)
    assert len([one for one in recorded(busy) if one.shadows]) == ASKED_PER_MINUTE


def test_answers_of_shadows_are_kept_however_many_requests_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_decisions, "KEPT_PER_MINUTE", 1.0)
    late = scheduler(pool("min-ttft", "random", instances=1, slo=SloFacts(ttft_seconds=0.001)))
    for number in range(5):
        serve(late, f"r{number}", 1.0 + number / 1000)
    assert [len(one.shadows) for one in recorded(late)] == [1] * 5


def test_a_request_that_the_policy_did_not_place_asks_nobody() -> None:
    chat = scheduler(pool("min-ttft", "random"))
    within = replace(request("a", at=1.0), within=("i01",))
    chat.submit(within, 1.0)
    chat.first_token("a", 1.1)
    chat.complete("a", 1.2, 10, None)
    assert [one.shadows for one in recorded(chat)] == [()]


def test_shadows_follow_the_table_and_leave_with_it() -> None:
    chat = scheduler(pool("min-ttft", "cache-affinity", instances=1))
    more = pool("min-ttft", "cache-affinity", instances=4, version=2)
    drained = (replace(more.instances[0], state=InstanceState.DRAINING), *more.instances[1:])
    chat.update_table(replace(more, instances=drained), 1.0)
    serve(chat, "a", 2.0, blocks=(1, 2))
    chat.update_table(replace(pool("min-ttft", version=3, instances=4), instances=drained), 3.0)
    serve(chat, "b", 4.0, blocks=(1, 2))
    shown = {one.request: one.shadows for one in recorded(chat)}
    assert shown["a"][0].target in {one.id for one in entries(4)[1:]}
    assert shown["b"] == ()


@pytest.mark.parametrize(
    ("shadow", "field", "remedy"),
    [
        (ShadowPolicy(policy="no-such"), "spec.routing.shadows[1].policy", "choose one of"),
        (ShadowPolicy(policy="lodestar"), "spec.routing.shadows[1].policy", "learns from the results of its choices"),
        (ShadowPolicy(policy="fairlead", parameters={"learned_ttft": True}), "spec.routing.shadows[1].policy", "learns from the results"),
        (ShadowPolicy(policy="fairlead", parameters={"kv_seconds": -1}), "spec.routing.shadows[1].parameters.kv_seconds", "0"),
        (ShadowPolicy(policy="static-pd"), "spec.routing.shadows[1].policy", "prefill"),
    ],
)
def test_a_shadow_that_cannot_advise_is_refused_with_its_field(shadow: ShadowPolicy, field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        BUILT_IN.check(RoutingFacts(shadows=(ShadowPolicy(policy="ear"), shadow)), BOTH)
    assert refused.value.field == field
    assert remedy in refused.value.remedy
