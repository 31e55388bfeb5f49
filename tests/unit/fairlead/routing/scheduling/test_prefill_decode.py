"""Pools with prefill and decode instances: which are chosen, where requests count, and what happens when a role
fails.
"""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import DISCIPLINES
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.static_pd import StaticPd, StaticPdParameters
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EARLY_REJECTION_MODES, EarlyRejectionFacts, InstanceEntry, RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, refusals, request, table, view_over
from fairlead_testing.examples import examples


def split_pool(policy: str = "static-pd", prefill: int = 2, decode: int = 2, **facts: object) -> RoutingTable:
    entries: list[InstanceEntry] = [entry(f"p{number}", role=Role.PREFILL) for number in range(prefill)]
    entries += [entry(f"x{number}", role=Role.DECODE) for number in range(decode)]
    return table(entries, policy=policy, **facts)  # type: ignore[arg-type]  # the facts are table()'s own keywords


def decoder(name: str, tokens: int, requests: int = 1, state: InstanceState = InstanceState.SERVING) -> InstanceLoad:
    return InstanceLoad(entry=entry(name, state, role=Role.DECODE), decode_tokens=tokens, decoding=requests)


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_every_policy_prefills_on_a_prefill_instance_and_decodes_on_a_decode_instance(policy: str) -> None:
    scheduler = PoolScheduler(split_pool(policy, window=0), "router-0", 1)
    for number in range(12):
        (sent,) = dispatches(scheduler.submit(request(f"r{number}", 2_048, blocks=(1, number), session=f"s{number % 3}"), float(number)))
        assert sent.instance.startswith("p")
        assert sent.decode is not None
        assert sent.decode.startswith("x")
        assert sent.decode_address == f"{sent.decode}:8000"
        assert not any(fallback.startswith("x") for fallback in sent.fallbacks)


def test_a_request_counts_as_incoming_until_its_prompt_is_computed_and_then_where_it_decodes() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1), "router-0", 1)
    scheduler.submit(request("r1", 1_000), 0.0)
    scheduler.submit(request("r2", 500), 0.0)
    prefill, decode = scheduler.load("p0"), scheduler.load("x0")
    assert prefill is not None
    assert decode is not None
    assert (prefill.prefilling, prefill.waiting, decode.incoming, decode.incoming_tokens) == (1, 1, 2, 1_500)
    scheduler.first_token("r1", 0.2)
    assert (prefill.decoding, decode.decoding, decode.decode_tokens, decode.incoming) == (0, 1, 1_000, 1)
    scheduler.complete("r1", 1.0, 10, None)
    assert (decode.decoding, decode.decode_tokens) == (0, 0)
    samples = scheduler.take_records(3.0, final=True).loads
    assert sum(one.completed for one in samples if one.instance == "x0") == 1
    assert sum(one.prompt_tokens for one in samples if one.instance == "p0") == 1_000


def test_output_tokens_are_counted_once_and_where_they_are_decoded_as_they_come() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1), "router-0", 1)
    for name in ("ends", "fails"):
        scheduler.submit(request(name, 1_000), 0.0)
        scheduler.generated(name, 0.1, 7)  # nothing can have come yet
        scheduler.first_token(name, 0.2)
    for second in (1, 2, 3):
        scheduler.generated("ends", second + 0.5, 20 * second)
    scheduler.generated("ends", 3.75, 60)
    scheduler.generated("fails", 3.75, 5)
    scheduler.fail("fails", 4.0)
    scheduler.complete("ends", 4.5, 70, None)
    scheduler.generated("ends", 4.75, 80)
    samples = scheduler.take_records(9.0, final=True).loads
    assert {(one.instance, one.second): one.generated_tokens for one in samples if one.generated_tokens} == {
        ("x0", 1): 20,
        ("x0", 2): 20,
        ("x0", 3): 25,
        ("x0", 4): 10,
    }
    assert sum(one.output_tokens for one in samples) == 70


def test_select_decoding_takes_the_shortest_step_with_the_request_where_it_fits() -> None:
    loads = [decoder("x1", 90_000, 2), decoder("x2", 10_000, 9), decoder("x3", 0, 0, InstanceState.DRAINING)]
    by_context = view_over(loads, kv_cache_tokens=100_000, decode_seconds_per_context_token=1e-6)
    chosen = select_decoding(request("r", 5_000), by_context)
    assert chosen is not None
    assert chosen.instance == "x2"
    assert chosen.tpot_seconds == pytest.approx(0.015)
    by_batch = view_over(loads, kv_cache_tokens=100_000, decode_seconds_per_request=0.001)
    assert getattr(select_decoding(request("r", 5_000), by_batch), "instance", None) == "x1"
    assert getattr(select_decoding(request("r", 20_000), by_batch), "instance", None) == "x2"
    full = select_decoding(request("r", 95_000), by_batch)
    assert full is not None
    assert (full.instance, full.tpot_seconds) == ("x2", inf)
    assert select_decoding(request("r"), by_batch, excluded=("x1", "x2")) is None


def test_static_pd_takes_the_least_pending_and_the_least_kv_with_room_for_the_reserve() -> None:
    loads = [
        InstanceLoad(entry=entry("p1", role=Role.PREFILL), pending_prefill_tokens=9_000),
        InstanceLoad(entry=entry("p2", role=Role.PREFILL), pending_prefill_tokens=1_000),
        decoder("x1", 9_000),
        decoder("x2", 8_500),
    ]
    view = view_over(loads, kv_cache_tokens=10_000)
    decision = StaticPd(StaticPdParameters()).choose(request("r", 400), view, 0.0)
    assert (decision.instance, decision.decode) == ("p2", "x2")
    assert StaticPd(StaticPdParameters(reserve_tokens=9_000)).choose(request("r", 400), view, 0.0).decode == "x2"


def without(pool: RoutingTable, *gone: str) -> RoutingTable:
    """Return the next version of the table, in which these instances drain."""
    entries = tuple(replace(one, state=InstanceState.DRAINING) if one.id in gone else one for one in pool.instances)
    return replace(pool, version=pool.version + 1, instances=entries)


def revised(pool: RoutingTable, **revisions: str) -> RoutingTable:
    """Return the same pool with instances of these revisions."""
    return replace(pool, instances=tuple(replace(one, revision=revisions.get(one.id, "")) for one in pool.instances))


def test_prefill_instances_wait_for_someone_to_decode() -> None:
    pool = split_pool(decode=1)
    alone = replace(pool, instances=tuple(replace(one, state=InstanceState.DRAINING) if one.id == "x0" else one for one in pool.instances))
    scheduler = PoolScheduler(alone, "router-0", 1)
    assert scheduler.submit(request("r1"), 0.0) == ()
    sent = dispatches(scheduler.update_table(replace(pool, version=2), 1.0))
    assert [(one.request.id, one.decode) for one in sent] == [("r1", "x0")]


def test_a_queued_request_finds_another_decode_instance_when_its_own_leaves() -> None:
    pool = split_pool(prefill=1)
    scheduler = PoolScheduler(pool, "router-0", 1)
    scheduler.submit(request("r1"), 0.0)
    scheduler.submit(request("r2"), 0.0)
    waits_for = next(load.entry.id for load in scheduler.loads() if load.incoming_tokens and load.entry.id == "x1")
    scheduler.update_table(replace(pool, version=2, instances=tuple(one for one in pool.instances if one.id != waits_for)), 0.1)
    (sent,) = dispatches(scheduler.first_token("r1", 0.2))
    assert (sent.request.id, sent.decode) == ("r2", "x0")


def test_a_queued_request_decodes_where_it_is_once_that_takes_both_roles() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1), "router-0", 1)
    scheduler.submit(request("r1", 1_000), 0.0)
    scheduler.submit(request("r2", 1_000), 0.0)
    pool = replace(scheduler.table, version=2, instances=(entry("p0", role=Role.BOTH),))
    assert scheduler.update_table(pool, 1.0) == ()
    (sent,) = dispatches(scheduler.complete("r1", 2.0, 5, None))
    assert (sent.request.id, sent.instance, sent.decode, sent.decode_address) == ("r2", "p0", None, None)
    assert scheduler.discrepancies() == ()


def test_when_only_its_decode_instance_failed_the_prefill_stays() -> None:
    scheduler = PoolScheduler(split_pool(), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(request("r1"), 0.0))
    assert sent.decode is not None
    again = scheduler.retry("r1", 0.1, sent.decode)
    assert isinstance(again, Dispatch)
    assert again.instance == sent.instance
    assert again.decode not in (None, sent.decode)
    assert isinstance(scheduler.retry("r1", 0.2, again.instance), Dispatch)
    assert isinstance(scheduler.retry("r1", 0.3, "p0"), Refusal)
    assert scheduler.discrepancies() == ()


def test_after_its_prefill_a_request_still_finds_another_decode_instance_and_is_computed_again_where_it_is_cached() -> None:
    scheduler = PoolScheduler(split_pool(), "router-0", 1, sample_rate=1.0)
    (sent,) = dispatches(scheduler.submit(request("r1", 2_048, blocks=(1, 2, 3, 4)), 0.0))
    assert sent.decode is not None
    assert scheduler.prefilled("r1", 0.3) == ()
    prefill, decode = scheduler.load(sent.instance), scheduler.load(sent.decode)
    assert prefill is not None
    assert decode is not None
    assert (prefill.prefilling, prefill.pending_prefill_tokens, decode.decoding, decode.decode_tokens) == (0, 0, 1, 2_048)
    again = scheduler.retry("r1", 0.4, sent.decode)
    assert isinstance(again, Dispatch)
    assert (again.instance, again.hit_tokens) == (sent.instance, 2_047)
    assert again.decode not in (None, sent.decode)
    assert decode.decoding == 0
    scheduler.prefilled("r1", 0.5)
    scheduler.first_token("r1", 0.6)
    scheduler.complete("r1", 1.0, 20, None)
    (decision,) = scheduler.take_records(3.0, final=True).decisions
    assert (decision.chosen, decision.served_by, decision.decode, decision.ttft_seconds) == (
        sent.instance,
        sent.instance,
        again.decode,
        0.6,
    )
    assert scheduler.discrepancies() == ()


def test_decode_instances_that_refuse_the_connection_are_each_tried_once_until_one_takes_the_request() -> None:
    scheduler = PoolScheduler(split_pool(decode=5), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(request("r1", 2_048), 0.0))
    scheduler.prefilled("r1", 0.3)
    tried: list[str | None] = [sent.decode]
    for _ in range(4):
        assert sent.decode is not None
        again = scheduler.retry("r1", 0.4, sent.decode, reached=False)
        assert isinstance(again, Dispatch)
        sent = again
        tried.append(sent.decode)
    assert len(set(tried)) == 5
    assert scheduler.discrepancies() == ()


def test_a_second_attempt_at_the_decode_leg_teaches_nothing_of_prefills() -> None:
    scheduler = PoolScheduler(split_pool(), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(request("r1", 2_048), 0.0))
    assert sent.decode is not None
    scheduler.prefilled("r1", 0.3)
    prefill = scheduler.load(sent.instance)
    assert prefill is not None
    learnt = prefill.prefill_pace
    assert isinstance(scheduler.retry("r1", 0.4, sent.decode), Dispatch)
    scheduler.prefilled("r1", 0.4)
    assert prefill.prefill_pace == learnt


def test_the_end_of_a_prefill_lets_the_next_one_go_while_the_first_token_is_still_to_come() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1), "router-0", 1)
    assert len(dispatches(scheduler.submit(request("r1", 1_000), 0.0))) == 1
    assert dispatches(scheduler.submit(request("r2", 1_000), 0.0)) == []
    assert [one.request.id for one in dispatches(scheduler.prefilled("r1", 0.2))] == ["r2"]
    assert scheduler.prefilled("r1", 0.3) == ()
    samples = scheduler.take_records(3.0, final=True).loads
    assert sum(one.ttft_total for one in samples) == 0


def test_both_instances_hold_the_prompt_once_it_is_decoded() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1), "router-0", 1)
    scheduler.submit(request("r1", 2_048, blocks=(1, 2, 3, 4)), 0.0)
    scheduler.prefilled("r1", 0.3)
    scheduler.first_token("r1", 0.4)
    scheduler.complete("r1", 1.0, 5, None)
    scheduler.update_table(without(scheduler.table, "p0"), 2.0)
    (sent,) = dispatches(scheduler.submit(request("r2", 2_100, blocks=(1, 2, 3, 4), at=2.0), 2.0))
    assert (sent.instance, sent.hit_tokens) == ("x0", 2_048)


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_without_a_prefill_instance_a_decode_instance_computes_everything(policy: str) -> None:
    pool = split_pool(policy)
    scheduler = PoolScheduler(without(pool, "p0", "p1"), "router-0", 1, sample_rate=1.0)
    sent = [one for number in range(2) for one in dispatches(scheduler.submit(request(f"r{number}", session="s"), 0.0))]
    assert [(one.instance, one.decode, one.reason) for one in sent] == [("x0", None, "decode-only"), ("x1", None, "decode-only")]
    for one in sent:
        scheduler.first_token(one.request.id, 1.0)
        scheduler.complete(one.request.id, 2.0, 10, None)
    records = scheduler.take_records(3.0, final=True)
    assert {(one.weighing.rule, one.reason, one.decode) for one in records.decisions} == {("no-prefill", "decode-only", None)}
    assert records.bindings == ()
    (back,) = dispatches(scheduler.update_table(replace(pool, version=9), 3.0) + scheduler.submit(request("r9", at=3.0), 3.0))
    assert back.instance.startswith("p")
    assert scheduler.discrepancies() == ()


def test_what_one_instance_must_compute_goes_whole_to_a_decode_instance_and_in_other_pools_anywhere() -> None:
    whole = replace(request("r1"), divisible=False)
    scheduler = PoolScheduler(split_pool("fairlead"), "router-0", 1, sample_rate=1.0)
    (sent,) = dispatches(scheduler.submit(whole, 0.0))
    assert (sent.instance, sent.decode, sent.reason) == ("x0", None, "decode-only")
    again = scheduler.retry("r1", 0.1, "x0")
    assert isinstance(again, Dispatch)
    assert (again.instance, again.decode, again.reason) == ("x1", None, "decode-only")
    scheduler.first_token("r1", 0.2)
    scheduler.complete("r1", 0.3, 2, None)
    assert scheduler.take_records(3.0, final=True).decisions[0].weighing.rule == "indivisible"
    (usual,) = dispatches(PoolScheduler(table(2, policy="fairlead"), "router-0", 1).submit(whole, 0.0))
    assert usual.reason != "decode-only"


def test_when_every_prefill_instance_failed_it_a_decode_instance_computes_everything() -> None:
    scheduler = PoolScheduler(split_pool(), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(request("r1"), 0.0))
    second = scheduler.retry("r1", 0.1, sent.instance)
    assert isinstance(second, Dispatch)
    assert (second.instance, second.decode is None) == ("p1" if sent.instance == "p0" else "p0", False)
    third = scheduler.retry("r1", 0.2, second.instance)
    assert isinstance(third, Dispatch)
    assert (third.instance[0], third.decode, third.reason) == ("x", None, "decode-only")
    assert scheduler.discrepancies() == ()


def test_only_instances_of_one_revision_pair_and_a_rollout_never_stops_the_pool() -> None:
    pool = split_pool("mooncake", window=0)
    half = revised(pool, p0="old", p1="new", x0="old", x1="new")
    scheduler = PoolScheduler(half, "router-0", 1)
    for number in range(8):
        (sent,) = dispatches(scheduler.submit(request(f"r{number}", blocks=(number,)), 0.0))
        assert (sent.instance, sent.decode) in {("p0", "x0"), ("p1", "x1")}
    alone = revised(replace(pool, version=2), p0="new", p1="old", x0="old", x1="old")
    scheduler.update_table(alone, 1.0)
    (sent,) = dispatches(scheduler.submit(request("a", at=1.0), 1.0))
    assert sent.instance == "p1"
    none = revised(replace(pool, version=3), p0="new", p1="new", x0="old", x1="old")
    scheduler.update_table(none, 2.0)
    (sent,) = dispatches(scheduler.submit(request("b", at=2.0), 2.0))
    assert (sent.instance[0], sent.reason) == ("x", "decode-only")


def test_early_rejection_refuses_what_no_decode_instance_has_room_for_once_each_has_something_to_decode() -> None:
    pool = split_pool(kv_cache_tokens=4_000, rejection=EarlyRejectionFacts(mode="Load"))
    scheduler = PoolScheduler(pool, "router-0", 1)
    instances = [load.entry.id for load in scheduler.loads() if load.entry.role is Role.DECODE]
    for number in range(len(instances)):  # an idle instance tries what should not fit: the figure may be wrong
        (sent,) = dispatches(scheduler.submit(request(f"idle{number}", 5_000, blocks=(number,)), 0.0))
        assert sent.decode in instances
    (refusal,) = refusals(scheduler.submit(request("r", 5_000), 0.0))
    assert refusal.message == "no decode instance of pool default/chat has room for 5000 tokens"
    assert refusal.retry_after_seconds >= 1


def test_a_pool_without_both_roles_cannot_use_static_pd_and_is_told_so() -> None:
    with pytest.raises(
        InvalidInput, match=r"needs instances of role prefill and decode; choose another policy, or declare these roles"
    ) as refused:
        BUILT_IN.check_roles("static-pd", {Role.BOTH})
    assert refused.value.field == "spec.routing.policy"
    BUILT_IN.check_roles("static-pd", {Role.PREFILL, Role.DECODE})
    BUILT_IN.check_roles("mooncake", {Role.BOTH})


def test_decode_instances_have_no_anchors() -> None:
    pool = split_pool("dualmap", prefill=2, decode=2)
    scheduler = PoolScheduler(pool, "router-0", 1)
    instances = {dispatches(scheduler.submit(request(f"r{number}", blocks=(number,)), 0.0))[0].instance for number in range(2)}
    assert instances <= {"p0", "p1"}


def behind_a_sidecar(name: str, tokens: int = 1_000, **more: object) -> RoutingRequest:
    return replace(request(name, tokens), by_sidecar=True, **more)  # type: ignore[arg-type]  # fields of the request


def test_a_side_cars_answer_that_has_begun_is_not_refused_after_its_prefill() -> None:
    rejection = EarlyRejectionFacts(mode="AfterPrefill")
    refused = []
    for by_sidecar in (False, True):
        scheduler = PoolScheduler(split_pool(prefill=1, decode=1, rejection=rejection, decode_base_seconds=0.2), "router-0", 1)
        for number in range(2):
            scheduler.submit(replace(request(f"r{number}", 1_000), by_sidecar=by_sidecar), float(number))
            refused.append(bool(refusals(scheduler.first_token(f"r{number}", number + 0.1))))
    assert refused == [False, True, False, False]


def test_the_prefill_of_an_unstreamed_answer_behind_a_side_car_ends_when_it_should_have() -> None:
    scheduler = PoolScheduler(split_pool(prefill=1, decode=1, speed=1_000.0), "router-0", 1)
    scheduler.submit(behind_a_sidecar("r1", streamed=False), 0.0)
    scheduler.submit(behind_a_sidecar("r2", streamed=False), 0.0)
    load = scheduler.load("p0")
    assert load is not None
    assert (load.prefilling, load.waiting) == (1, 1)
    sent = [one.request.id for tick in range(1, 12) for one in dispatches(scheduler.tick(tick * 0.5))]
    assert sent == ["r2"], "the first answer is still on its way"
    assert not scheduler.discrepancies()


def test_a_proxy_that_went_on_to_another_decode_instance_keeps_the_prefill_instance() -> None:
    scheduler = PoolScheduler(split_pool(), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(behind_a_sidecar("r1"), 0.0))
    other = {"x0": "x1", "x1": "x0"}[str(sent.decode)]
    again = scheduler.retry("r1", 1.0, str(sent.decode), to=other)
    assert isinstance(again, Dispatch)
    assert (again.instance, again.decode) == (sent.instance, other)
    scheduler.first_token("r1", 2.0)
    scheduler.complete("r1", 3.0, 5, None)
    assert not scheduler.discrepancies()


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_a_subset_holds_for_who_decodes_too(policy: str) -> None:
    scheduler = PoolScheduler(split_pool(policy, window=0), "router-0", 1)
    for number in range(8):
        within = ("p0", "p1", "x1")
        (sent,) = dispatches(scheduler.submit(behind_a_sidecar(f"r{number}", within=within), float(number)))
        assert sent.decode == "x1"
    (whole,) = dispatches(scheduler.submit(behind_a_sidecar("whole", within=within, divisible=False), 9.0))
    assert (whole.instance, whole.decode) == ("x1", None)
    assert refusals(scheduler.submit(behind_a_sidecar("nobody", within=("p0",)), 10.0))


@pytest.mark.parametrize("mode", EARLY_REJECTION_MODES)
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_no_objective_refuses_what_nobody_waits_for_and_it_is_late_for_nobody(mode: str, discipline: str) -> None:
    rejection, parameters = EarlyRejectionFacts(mode=mode), {"queue_discipline": discipline}
    facts: dict[str, Any] = {"rejection": rejection, "parameters": parameters, "decode_base_seconds": 0.2}
    scheduler = PoolScheduler(split_pool("fairlead", prefill=1, decode=1, **facts), "router-0", 1)
    scheduler.submit(request("client", 10_000), 0.0)
    outcomes = [*scheduler.submit(replace(request("heir", 100_000), warms=True, streamed=False), 0.1)]
    for tick in range(1, 8):
        outcomes += scheduler.tick(tick / 2)
    outcomes += scheduler.first_token("client", 4.0)
    outcomes += scheduler.complete("client", 4.0, 2, None)
    outcomes += scheduler.tick(6.0)
    assert not refusals(outcomes), "it takes 16 s, and the objective is 5 s"
    assert [one.request.id for one in dispatches(outcomes)] == ["heir"]
    assert not refusals(scheduler.prefilled("heir", 22.0))
    scheduler.complete("heir", 23.0, 1, None)
    assert scheduler._state.late._first_tokens == 0.0
    assert not scheduler.discrepancies()


LATE_SECONDS = 1000.0


@given(st.lists(st.sampled_from(["retry", "generated", "first_token"]), max_size=4), st.sampled_from(["complete", "fail", "cancel"]))
@examples(100)
def test_whatever_becomes_of_what_warms_an_heir_it_is_in_no_figure_but_the_work_of_its_instances(steps: list[str], ending: str) -> None:
    """A late first token, a failed attempt, tokens and an end: none of these is a client's."""
    scheduler = PoolScheduler(split_pool(prefill=2, decode=2), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(replace(request("heir", 2_048), warms=True), 0.0))
    now = LATE_SECONDS
    for step in steps:
        now += 1.0
        if step == "retry":
            again = scheduler.retry("heir", now, sent.instance, reached=True)
            if isinstance(again, Refusal):
                break
            sent = again
        elif step == "generated":
            scheduler.generated("heir", now, round(now))
        else:
            scheduler.first_token("heir", now)
    if ending == "complete":
        scheduler.complete("heir", now + 1.0, 1, None)
    else:
        getattr(scheduler, ending)("heir", now + 1.0)
    records = scheduler.take_records(now + 9.0, final=True)
    assert not any(one.requests or one.completed or one.failed or one.cancelled or one.generated_tokens for one in records.loads)
    assert not any(one.ttft_seconds or one.ttft_total or one.tpot_total or one.judged_by_slo for one in records.loads)
    assert not records.slo_samples
    assert not scheduler.discrepancies()
