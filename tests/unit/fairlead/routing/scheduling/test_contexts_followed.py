"""Contexts that the scheduler follows, and where the policy `fairlead` therefore sends a new session."""

from dataclasses import replace

from fairlead.instances import InstanceState
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import dispatches, having_seen, request, table

CACHE = 20_000
"""The number of tokens in the cache of an instance."""


def pool(keep_weight: float) -> PoolScheduler:
    """Return two instances, and an agent that had a turn every two seconds and now pauses. Its context nearly fills a
    cache.
    """
    of_table = table(2, policy="fairlead", kv_cache_tokens=CACHE, parameters={"keep_weight": keep_weight, "kv_seconds": 0.0})
    made = having_seen(PoolScheduler(of_table, "router-0", 0, sample_rate=1.0))
    assert {turn(made, "agent", 18_000, 2.0 * number) for number in range(10)} == {"i00"}
    return made


def turn(of_pool: PoolScheduler, session: str, tokens: int, at: float, *, answer: int = 10) -> str:
    """Serve a whole turn and return the instance that served it. Its first 1,024 tokens are those of all sessions."""
    own = sum(map(ord, session)) * 1000
    asked = request(f"{session}{at}", tokens, session=session, at=at, blocks=(1, 2, *range(own, own + tokens // 512 - 2)))
    (sent,) = dispatches(of_pool.submit(asked, at))
    of_pool.first_token(asked.id, at + 0.1)
    of_pool.complete(asked.id, at + 0.2, answer, None)
    return sent.instance


def kept(of_pool: PoolScheduler, now: float) -> list[int]:
    of_pool._state.view.now = now
    tokens = of_pool._state.view.kept_tokens()
    return [] if tokens is None else [round(one) for one in tokens]


def test_a_new_session_goes_where_it_evicts_no_context_that_is_likely_to_be_used_again() -> None:
    assert turn(pool(0.0), "new", 10_240, 20.0) == "i00", "which holds its first 1,024 tokens"
    assert turn(pool(2.0), "new", 10_240, 20.0) == "i01"


def test_a_session_goes_on_at_its_home_however_little_else_fits_there() -> None:
    assert turn(pool(2.0), "agent", 19_000, 20.0) == "i00"


def test_the_cost_is_recorded_and_never_more_than_what_the_request_adds() -> None:
    chat = pool(2.0)
    turn(chat, "new", 10_240, 20.0)
    (weighed,) = [one for one in chat.take_records(21.0, final=True).decisions if one.session == "new"]
    seconds = {candidate.instance: candidate.terms["kept_seconds"] for candidate in weighed.weighing.candidates}
    assert seconds["i01"] == 0.0
    assert 0.0 < seconds["i00"] <= 2.0 * (10_240 - 1_024) / 6250 * 1.5


def test_nothing_is_followed_without_the_parameter_and_what_was_is_forgotten_with_it() -> None:
    chat = pool(2.0)
    assert kept(chat, 20.0)[0] > 0
    routing = replace(chat.table.routing, parameters={})
    chat.update_table(replace(chat.table, version=2, routing=routing), 20.0)
    assert kept(chat, 20.0) == []
    assert chat._state.view.kept is None


def test_a_refused_or_failed_turn_leaves_no_turn_running_and_a_lost_instance_no_context() -> None:
    chat = pool(2.0)
    chat.submit(request("failed", 12_000, session="agent", at=20.0, blocks=(1, 2)), 20.0)
    chat.fail("failed", 21.0)
    assert kept(chat, 200.0)[0] < 12_000
    left = tuple(one for one in chat.table.instances if one.id != "i00")
    chat.update_table(replace(chat.table, version=2, instances=left), 200.0)
    assert kept(chat, 200.0) == [0]


def test_the_view_of_some_instances_knows_the_same_contexts() -> None:
    chat = pool(2.0)
    chat._state.view.now = 20.0
    within = chat._state.view.within(("i00",)).kept_tokens()
    assert within is not None
    assert within.tolist() == [chat._state.view.kept_tokens()[0]]  # type: ignore[index]
    assert all(one.state is InstanceState.SERVING for one in chat.table.instances)
