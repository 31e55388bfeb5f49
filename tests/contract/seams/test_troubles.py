"""Unknown tokens, tokens without the right, outages, and answers that come too late."""

from contextlib import aclosing

import pytest

from fairlead.reports.batches import RouterGone, RouterState
from fairlead_client import protocol
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Cause, Later, Taken
from fairlead_client.problems import StreamLost
from fairlead_client.report_posts import encode_batch
from fairlead_testing.running.api import CHAT, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, Seam
from fairlead_testing.running.strict_system_api import batch_of
from fairlead_testing.waiting import PATIENCE_SECONDS

NOW = a_report("now").sent_at


async def outcomes(api: SystemApi, router: str) -> list[object]:
    """Return the outcome of one call of each kind except the stream."""
    return [
        await api.put_state(CHAT, a_state(an_instance("a"))),
        await api.post_events(CHAT, []),
        await api.delete_pool(CHAT),
        await api.post_reports([encode_batch(batch_of(a_report("r1", router)))], RouterState(sent_at=NOW)),
        await api.post_router_gone(RouterGone(router=router, at=NOW)),
    ]


async def lost(api: SystemApi, router: str) -> str:
    """Return the error with which the stream was lost before its first line."""
    async with aclosing(api.stream(router)) as lines:
        with pytest.raises(StreamLost) as error:
            await anext(lines)
    return str(error.value)


async def test_a_token_that_is_not_known_opens_nothing(seam: Seam) -> None:
    async with SystemApi(seam.url, "not-a-token", timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS) as api:
        for outcome in await outcomes(api, "router-0"):
            assert isinstance(outcome, Later)
            assert (outcome.cause, ": 401 " in outcome.problem) == (Cause.DECLINED, True)
        assert (await lost(api, "router-0")).startswith("the control API answered 401")


async def test_the_operator_is_no_router_and_a_router_no_operator(clients: Clients) -> None:
    of_router = (await outcomes(clients.router_api, "router-0"))[:3]
    of_operator = (await outcomes(clients.operator_api, "router-0"))[3:]
    for outcome in (*of_router, *of_operator):
        assert isinstance(outcome, Later)
        assert (outcome.cause, ": 403 " in outcome.problem) == (Cause.DECLINED, True)
    assert (await lost(clients.operator_api, "router-0")).startswith("the control API answered 403")


@pytest.mark.parametrize("other", ["edge", "route", "routers"])
async def test_a_router_speaks_for_itself_only(clients: Clients, other: str) -> None:
    for outcome in (await outcomes(clients.router_api, other))[3:]:
        assert isinstance(outcome, Later)
        assert outcome.cause is Cause.DECLINED
        assert other in outcome.problem
    assert (await lost(clients.router_api, other)).startswith("the control API answered 403")


async def test_an_outage_is_told_with_a_pause_and_ends(seam: Seam, clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    async with seam.away():
        answers = [*(await outcomes(clients.operator_api, "router-0"))[:3], *(await outcomes(clients.router_api, "router-0"))[3:]]
        for outcome in answers:
            assert isinstance(outcome, Later)
            assert (outcome.cause, outcome.retry_after_seconds) == (Cause.UNAVAILABLE, 2.0)
            assert "database-unavailable" in outcome.problem
        assert (await lost(clients.router_api, "router-0")).startswith("the control API answered 503")
    while not isinstance(outcome := await clients.operator_api.delete_pool(CHAT), Taken):
        assert isinstance(outcome, Later)
        assert outcome.cause is Cause.UNAVAILABLE


async def test_an_answer_that_comes_too_late_may_have_been_taken_and_may_be_asked_for_again(seam: Seam, clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    batches = [encode_batch(batch_of(a_report("r1", bindings=(a_binding("s", "a"),))))]
    await clients.router_api.newest_model(CHAT)  # connects, which the time below would bound too
    async with seam.slow():
        outcome = await clients.router_api.post_reports(batches, RouterState(sent_at=NOW), seconds=0.3)
        assert isinstance(outcome, Later)
        assert outcome.cause is Cause.TIMED_OUT
    again = await clients.router_api.post_reports(batches, RouterState(sent_at=NOW))
    assert isinstance(again, Taken)
    (receipt,) = again.answer
    assert (receipt.id, receipt.lost) == ("r1", ())
    (found,) = (await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))).instances
    assert found.bound_sessions == 1


async def test_nobody_listening_is_unreachable() -> None:
    async with SystemApi("http://127.0.0.1:9", "token", timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS) as api:
        for outcome in await outcomes(api, "router-0"):
            assert isinstance(outcome, Later)
            assert (outcome.cause, outcome.retry_after_seconds) == (Cause.UNREACHABLE, None)
        assert (await lost(api, "router-0")).startswith("ConnectError")


async def test_a_caller_of_a_release_too_far_away_is_told_so_and_keeps_what_it_has(seam: Seam, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "VERSION", protocol.VERSION + protocol.MOST_APART + 1)
    async with SystemApi(seam.url, seam.router_token, timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS) as api:
        monkeypatch.undo()
        outcome = await api.post_reports([encode_batch(batch_of(a_report("r1")))], RouterState(sent_at=NOW))
        assert isinstance(outcome, Later), "what is refused for ever would be set aside"
        assert (outcome.cause, "upgrade the control API" in outcome.problem) == (Cause.DECLINED, True)
        assert "upgrade the control API" in await lost(api, "router-0")
