"""A router that stopped reporting while others go on is a finding as long as it is silent, even if no other router
misses it.
"""

import pytest

from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause, EvidenceKind, Finding, HarmUnit, Level
from fairlead.advice.situations import PoolSituation, SeenSilentRouter
from fairlead.reports.shares import Apart
from fairlead_testing.builders.situations import well

STOPPED = SeenSilentRouter(name="router-1", seconds=240.0)


def only(pool: PoolSituation) -> Finding:
    (found,) = advise([pool])
    return found


def test_a_silent_router_beside_another_is_named_with_how_long_and_with_who_serves() -> None:
    found = only(well(silent_routers=(STOPPED,), live_routers=1))
    assert (found.cause, found.level, found.evidence.kind) == (Cause.ROUTER_SILENT, Level.WARN, EvidenceKind.POOL)
    assert (found.harm.amount, found.harm.unit, found.evidence.seconds) == (1.0, HarmUnit.ROUTERS, 240.0)
    assert found.sentence == (
        "router-1 has not reported on default/chat for 4 min and has not said goodbye; 1 other router serves: see whether it still "
        "runs and gets requests."
    )


def test_the_requests_that_it_had_when_it_was_last_heard_are_counted() -> None:
    held = SeenSilentRouter(name="router-1", seconds=30.0, requests=3)
    sentence = only(well(silent_routers=(held,), live_routers=2)).sentence
    assert sentence.startswith("router-1 has not reported on default/chat for 30 s and has not said goodbye, with 3 requests in progress;")
    assert "2 other routers serve" in sentence


def test_several_silent_routers_are_one_finding_with_the_longest_silent_first() -> None:
    more = tuple(SeenSilentRouter(name=f"router-{number}", seconds=10.0 * number, requests=1) for number in (2, 3))
    found = only(well(silent_routers=(*more, STOPPED), live_routers=1))
    assert found.harm.amount == 3.0
    assert found.sentence.startswith(
        "3 routers have not reported on default/chat and have not said goodbye, with 2 requests in progress: "
        "router-1 for 4 min, router-3 for 30 s, router-2 for 20 s;"
    )


@pytest.mark.parametrize(("joined", "level"), [(0, Level.WARN), (1, Level.WARN), (2, Level.NOTE)])
def test_silent_routers_are_a_note_once_as_many_others_have_joined_since(joined: int, level: Level) -> None:
    """Kubernetes replaces a pod of a lost node by a pod with another name, and the lost one never says goodbye."""
    since = tuple(SeenSilentRouter(name=f"router-{number}", seconds=240.0, joined_since=joined) for number in (1, 2))
    found = only(well(silent_routers=since, live_routers=3))
    assert found.level is level
    assert ("joined since" in found.sentence) is (level is Level.NOTE)


def test_where_no_router_is_left_that_alone_is_found() -> None:
    found = only(well(silent_routers=(STOPPED,), live_routers=0, unheard_seconds=240.0))
    assert found.cause is Cause.NO_ROUTER


def test_one_that_is_left_alone_is_not_said_to_decide_apart() -> None:
    """It misses the silent router, for which there is a finding already. Two remaining routers may still miss each
    other.
    """
    apart = {Apart.NO_ANSWER.value: 1}
    assert only(well(silent_routers=(STOPPED,), live_routers=1, apart=apart)).cause is Cause.ROUTER_SILENT
    causes = {one.cause for one in advise([well(silent_routers=(STOPPED,), live_routers=2, apart=apart)])}
    assert causes == {Cause.ROUTER_SILENT, Cause.ROUTERS_APART}
