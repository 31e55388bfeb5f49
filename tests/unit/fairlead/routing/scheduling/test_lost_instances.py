"""Sessions whose instance is lost: each gets a new home at its next request, and together they overload no instance."""

from collections import Counter
from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_testing.builders.routing import dispatches, entries, request, table

SESSIONS = 200
LOST = ("i00", "i01")


class Conversations:
    """Sessions whose prompts begin with a common system prompt and two blocks of their own."""

    def __init__(self, of: RoutingTable) -> None:
        self.scheduler = PoolScheduler(of, "router-0", 0, sample_rate=0.0)
        self.now = 0.0
        self._asked: list[str] = []

    def turn(self, session: int, seconds: float) -> str:
        """Send the session's next turn, `seconds` after the last turn of any session; return the instance that computes
        it.
        """
        self.now += seconds
        blocks = (0, 10 * session + 1, 10 * session + 2)
        one = request(f"{self.now:.6f}", 1600, blocks=blocks, session=f"s{session}", at=self.now)
        self._asked.append(one.id)
        [sent] = dispatches(self.scheduler.submit(one, self.now))
        return sent.instance

    def answer_all(self) -> None:
        """Answer all turns so far."""
        for name in self._asked:
            self.scheduler.first_token(name, self.now + 0.3)
            self.scheduler.complete(name, self.now + 0.6, 10, None)

    def homes(self) -> dict[str, str | None]:
        bindings = {f"s{session}": self.scheduler.binding(f"s{session}") for session in range(SESSIONS)}
        return {name: binding.instance for name, binding in bindings.items() if binding is not None}


def after_a_loss(policy: str, prefill: int = 0) -> tuple[Conversations, dict[str, str | None]]:
    """Return sessions that have all had a turn before two of six instances were lost, and their former homes."""
    instances = entries(6)
    if prefill:
        instances = tuple(replace(one, role=Role.PREFILL if n < prefill else Role.DECODE) for n, one in enumerate(instances))
    conversations = Conversations(table(instances, policy=policy, window=0))
    for session in range(SESSIONS):
        conversations.turn(session, 0.002)
    conversations.answer_all()
    homes = conversations.homes()
    conversations.now += 20.0
    before = conversations.scheduler.table
    lost = tuple(replace(one, state=InstanceState.LOST) if one.id in LOST else one for one in before.instances)
    conversations.scheduler.update_table(replace(before, version=2, instances=lost), conversations.now)
    return conversations, homes


@pytest.mark.parametrize("policy", ["fairlead", "ear", "dualmap", "sticky"])
def test_sessions_of_lost_instances_that_all_come_within_a_second_are_shared_out(policy: str) -> None:
    conversations, homes = after_a_loss(policy)
    orphans = [session for session in range(SESSIONS) if homes[f"s{session}"] in LOST]
    assert len(orphans) > SESSIONS / 6, "the lost instances were home to many"
    found = Counter(conversations.turn(session, 1 / len(orphans)) for session in orphans)
    assert set(found) == {"i02", "i03", "i04", "i05"}
    assert max(found.values()) < 2 * len(orphans) / 4, "nobody gets twice its part"
    bindings = [conversations.scheduler.binding(f"s{session}") for session in orphans]
    assert {binding.reason for binding in bindings if binding is not None} == {BindingReason.INSTANCE_LOST}


@pytest.mark.parametrize("policy", ["fairlead", "ear", "dualmap", "sticky"])
def test_a_session_is_bound_anew_only_when_it_comes_again(policy: str) -> None:
    conversations, homes = after_a_loss(policy)
    assert conversations.homes() == homes
    one = next(session for session in range(SESSIONS) if homes[f"s{session}"] in LOST)
    target = conversations.turn(one, 0.0)
    assert conversations.homes() == {**homes, f"s{one}": target}


def test_the_sessions_of_lost_prefill_instances_are_shared_out_among_the_others() -> None:
    conversations, homes = after_a_loss("fairlead", prefill=4)
    orphans = [session for session in range(SESSIONS) if homes[f"s{session}"] in LOST]
    assert len(orphans) > SESSIONS / 4
    found = Counter(conversations.turn(session, 1 / len(orphans)) for session in orphans)
    assert set(found) == {"i02", "i03"}
    assert max(found.values()) <= 0.6 * len(orphans)
