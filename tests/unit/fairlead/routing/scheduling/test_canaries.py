"""Whole sessions go to the canary, stay there, and are recorded for the judge."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.canaries import place_of
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import CanaryFacts, RoutingTable
from fairlead_testing.builders.routing import entries, table
from fairlead_testing.examples import examples

OURS = ("i03", "i04")


def with_canary(share: float, policy: str = "fairlead", instances: tuple[str, ...] = OURS) -> RoutingTable:
    return replace(table(entries(5), policy=policy, window=0), canary=CanaryFacts(step="k/0", share=share, instances=instances))


def scheduler(known: RoutingTable) -> PoolScheduler:
    return PoolScheduler(known, "router-0", 1, sample_rate=1.0)


def request(name: str, session: str | None) -> RoutingRequest:
    number = sum(name.encode())
    return RoutingRequest(
        id=name, arrived_at=0.0, prompt_tokens=1024, blocks=(number, number + 1), first_bytes_hash=number, session=session
    )


def served(pool: PoolScheduler, name: str, session: str | None, now: float = 1.0) -> str:
    (outcome,) = pool.submit(request(name, session), now)
    assert isinstance(outcome, Dispatch)
    pool.first_token(name, now + 0.5)
    pool.complete(name, now + 1.5, 11, 512)
    return outcome.instance


@pytest.mark.parametrize("policy", [name for name in BUILT_IN.names if name != "static-pd"])
def test_by_any_policy_sessions_go_to_the_revision_of_their_place(policy: str) -> None:
    pool = scheduler(with_canary(0.4, policy))
    for number in range(40):
        session = f"s{number}"
        assert (served(pool, f"r{number}", session) in OURS) == (place_of(session) < 0.4)
    assert not pool.discrepancies()


def test_a_session_with_a_home_stays_with_its_revision_whatever_the_share() -> None:
    pool = scheduler(with_canary(0.0))
    names = [f"s{number}" for number in range(30)]
    homes = {name: served(pool, f"first-{name}", name) for name in names}
    assert not set(homes.values()) & set(OURS)
    pool.update_table(replace(with_canary(0.9), version=2), 2.0)
    assert not {served(pool, f"then-{name}", name, 3.0) for name in names} & set(OURS)
    new = [served(pool, f"new{number}", f"new{number}", 4.0) for number in range(30)]
    assert set(new) & set(OURS)


def test_without_an_instance_of_its_revision_a_session_goes_to_any() -> None:
    assert served(scheduler(with_canary(1.0, instances=())), "r", "s") in {f"i{n:02}" for n in range(5)}


@given(st.text(min_size=1), st.floats(0, 1), st.floats(0, 1))
@examples(300)
def test_a_growing_share_takes_no_session_back(session: str, one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert not (place_of(session) < smaller) or place_of(session) < larger
    assert 0.0 <= place_of(session) < 1.0 + 1e-9


def test_about_the_share_of_all_sessions_goes_to_the_canary() -> None:
    assert sum(place_of(f"session-{number}") < 0.25 for number in range(10_000)) == pytest.approx(2500, abs=150)


def test_what_ended_is_recorded_for_the_judge_only_while_there_is_a_canary() -> None:
    pool = scheduler(with_canary(1.0))
    served(pool, "r", "s")
    pool.submit(request("lost", "s"), 5.0)
    pool.first_token("lost", 5.1)
    pool.fail("lost", 6.0)
    done, failed = pool.take_records(9.0).canary_samples
    assert (done.step, done.canary, done.cached_tokens, done.output_tokens) == ("k/0", True, 512, 11)
    assert done.ttft_seconds == pytest.approx(0.5)
    assert done.tpot_seconds == pytest.approx(0.1)
    assert done.session == failed.session
    assert failed.failed
    assert failed.ttft_seconds is None
    pool.update_table(replace(with_canary(1.0), canary=None, version=2), 10.0)
    served(pool, "later", "s", 11.0)
    assert not pool.take_records(20.0).canary_samples
