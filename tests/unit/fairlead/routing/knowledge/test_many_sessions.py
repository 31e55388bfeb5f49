"""Too many sessions for a router's memory: if a client invents names, its own sessions are forgotten, not those of
others.
"""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead_testing.builders.routing import POOL, entry
from fairlead_testing.examples import examples

LIMIT = 60
FLOOD = 5 * LIMIT


class Memory:
    """The bindings of a pool, changed by requests and by the API."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.loads = {name: InstanceLoad(entry=entry(name)) for name in "ab"}
        self.bindings = SessionBindings(POOL, 1e9, self.loads, limit)
        self.reported: list[str] = []
        self._numbers = count(1)

    def request(self, session: str, owner: str = "") -> None:
        """Handle a request as the scheduler does: the first one of a session binds it."""
        number = next(self._numbers)
        if self.bindings.get(session) is None:
            change = self.bindings.bind(session, "ab"[number % 2], BindingReason.COLD, float(number), 10, f"change-{number}", owner)
            self.report(None if self.bindings.is_held_back(session) else change)
        else:
            self.report(self.bindings.touch(session, float(number), owner))
        self.report(self.bindings.touch(session, float(number)))  # it has ended

    def report(self, change: BindingChange | None) -> None:
        """Report a change to the API, which answers with the binding."""
        if change is not None and not change.stays:
            self.reported.append(change.session)

    def told(self, session: str) -> None:
        """Receive a session of another router from the API's stream."""
        number = next(self._numbers)
        binding = Binding(
            pool=POOL, session=session, instance="a", version=number, reason=BindingReason.COLD, bound_at=1.0, migrated_at=None
        )
        self.bindings.apply(binding, float(number))

    def knows(self, *sessions: str) -> bool:
        return all(self.bindings.get(session) is not None for session in sessions)


def flood(memory: Memory, owner: str = "", *, twice: bool = False) -> None:
    for number in range(FLOOD):
        for _ in range(2 if twice else 1):
            memory.request(f"garbage-{number}", owner)


@pytest.mark.parametrize("twice", [False, True])
def test_a_keys_made_up_sessions_push_out_its_own_and_no_other_keys(twice: bool) -> None:
    memory = Memory()
    memory.request("first-turn", "other")
    for _ in range(2):
        memory.request("two-turns", "other")
    flood(memory, "flooding", twice=twice)
    assert memory.knows("first-turn", "two-turns")
    assert len(memory.bindings) == LIMIT


def test_without_keys_a_session_that_came_back_outlives_any_number_that_did_not() -> None:
    memory = Memory()
    for _ in range(2):
        memory.request("two-turns")
    flood(memory)
    assert memory.knows("two-turns")
    assert len(memory.bindings) == LIMIT


def test_a_flood_at_one_router_makes_no_other_router_forget_the_sessions_it_serves() -> None:
    memory = Memory()
    memory.request("served-here")
    for number in range(FLOOD):
        memory.told(f"garbage-{number}")
    assert memory.knows("served-here")
    assert len(memory.bindings) == LIMIT


def test_a_session_of_another_router_counts_as_new_here_at_its_first_request() -> None:
    memory = Memory()
    memory.told("s")
    memory.request("s", "mine")
    flood(memory, "mine")
    assert not memory.knows("s")


def test_the_api_hears_of_made_up_sessions_up_to_half_the_limit_and_of_one_that_comes_back() -> None:
    memory = Memory()
    flood(memory, "flooding")
    assert len(memory.reported) <= LIMIT // 2 + 1
    memory.request("garbage-299", "flooding")
    memory.request("of another", "other")
    assert memory.reported[-2:] == ["garbage-299", "of another"]
    assert len(set(memory.reported)) == len(memory.reported)


def test_a_session_that_the_api_has_not_heard_of_follows_what_another_router_made_of_it() -> None:
    memory = Memory()
    flood(memory)
    session = f"garbage-{FLOOD - 1}"
    assert memory.bindings.is_held_back(session)
    memory.told(session)
    binding = memory.bindings.get(session)
    assert binding is not None
    assert (binding.instance, memory.bindings.is_held_back(session)) == ("a", False)
    change = memory.bindings.bind(session, "b", BindingReason.SLO, 9e3, 10, "moved")
    assert (change.based_on, change.after, change.previous) == (binding.version, None, "a")


def test_a_move_follows_the_change_that_was_held_back() -> None:
    memory = Memory()
    flood(memory)
    session = f"garbage-{FLOOD - 1}"
    first = memory.bindings.release(session)
    assert first is not None
    change = memory.bindings.bind(session, "a", BindingReason.SLO, 9e3, 10, "moved")
    assert change.after == first.id
    assert memory.bindings.release(session) is None


def test_alone_an_owner_may_use_the_whole_memory() -> None:
    memory = Memory()
    for number in range(LIMIT):
        memory.request(f"s{number}", "only")
    assert memory.knows(*(f"s{number}" for number in range(LIMIT)))


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.booleans()), max_size=400)


@examples(100)
@given(STEPS)
def test_the_counts_are_those_of_the_sessions_that_are_known(steps: list[tuple[str, int, bool]]) -> None:
    memory = Memory(limit=7)
    for owner, number, elsewhere in steps:
        session = f"s{number}"
        memory.told(session) if elsewhere else memory.request(session, owner)
        assert memory.knows(session)
        assert len(memory.bindings) <= 7
    known = [binding for number in range(41) if (binding := memory.bindings.get(f"s{number}")) is not None]
    counted = Counter(binding.instance for binding in known)
    assert {name: load.sessions for name, load in memory.loads.items()} == {name: counted[name] for name in "ab"}
    memory.bindings.clear()
    assert all(load.sessions == 0 for load in memory.loads.values())


@examples(100)
@given(st.permutations([owner for owner in "abcde" for _ in range(12)]), st.integers(1, 3))
def test_who_stays_within_a_fair_share_loses_nothing_whatever_the_others_do(order: list[str], turns: int) -> None:
    memory = Memory()
    modest = [f"modest-{number}" for number in range(4)]
    for session in modest:
        for _ in range(turns):
            memory.request(session, "modest")
    for number, owner in enumerate(order):
        for piece in range(8):
            memory.request(f"{owner}-{number}-{piece % 5}", owner)
        memory.told(f"elsewhere-{number}")
    assert memory.knows(*modest)
