import sys
from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.binding_races import Held, Verdict, judge, next_version
from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.knowledge.bindings import MOST_PENDING, SessionBindings
from fairlead_testing.builders.routing import POOL, entry
from fairlead_testing.examples import examples


def known() -> tuple[SessionBindings, dict[str, InstanceLoad]]:
    loads = {name: InstanceLoad(entry=entry(name)) for name in ("a", "b", "c")}
    return SessionBindings(POOL, 60.0, loads, limit=5), loads


NUMBERS = count(1)


def bind(bindings: SessionBindings, session: str, instance: str, reason: BindingReason, now: float, context_tokens: int) -> BindingChange:
    return bindings.bind(session, instance, reason, now, context_tokens, f"change-{next(NUMBERS)}")


def told(session: str, instance: str | None, version: int, change: str | None = None) -> Binding:
    return Binding(
        pool=POOL,
        session=session,
        instance=instance,
        version=version,
        reason=BindingReason.DRAIN,
        bound_at=1.0,
        migrated_at=1.0,
        change=change,
    )


def test_a_change_is_based_on_what_the_api_told_and_follows_what_it_has_not_answered() -> None:
    bindings, loads = known()
    first = bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    second = bind(bindings, "s", "b", BindingReason.SLO, 1.0, 20)
    assert (first.based_on, first.after, first.previous) == (0, None, None)
    assert (second.based_on, second.after, second.previous) == (0, first.id, "a")
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.instance, binding.migrated_at) == ("b", 1.0)
    assert (loads["a"].sessions, loads["b"].sessions) == (0, 1)
    bindings.apply(told("s", "a", 1, first.id), 2.0)
    third = bind(bindings, "s", "c", BindingReason.SLO, 3.0, 20)
    assert (third.based_on, third.after) == (1, second.id)
    bindings.apply(told("s", "c", 3, third.id), 4.0)
    fourth = bind(bindings, "s", "a", BindingReason.SLO, 5.0, 20)
    assert (fourth.based_on, fourth.after) == (3, None)


def test_a_lost_change_takes_those_built_on_it_down_with_it() -> None:
    bindings, loads = known()
    bindings.apply(told("s", "a", 1), 0.0)
    first = bind(bindings, "s", "b", BindingReason.SLO, 1.0, 0)
    bind(bindings, "s", "c", BindingReason.SLO, 2.0, 0)
    assert bindings.apply(told("s", "a", 1), 3.0) == 0
    assert bindings.apply(told("s", "a", 1), 3.0, lost=[first.id]) == 2
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.instance, loads["c"].sessions) == ("a", 0)
    assert bind(bindings, "s", "b", BindingReason.SLO, 4.0, 0).after is None


def test_a_database_restored_from_a_backup_is_believed_once_it_refuses_a_change() -> None:
    bindings, _ = known()
    bindings.apply(told("s", "a", 7), 0.0)
    change = bind(bindings, "s", "b", BindingReason.SLO, 1.0, 0)
    bindings.apply(told("s", "c", 3), 2.0, lost=[change.id])
    following = bind(bindings, "s", "a", BindingReason.SLO, 3.0, 0)
    assert (following.previous, following.based_on, following.after) == ("c", 3, None)


def test_changes_made_before_a_restart_are_taken_back_unless_the_api_has_moved_on() -> None:
    before, _ = known()
    before.apply(told("s", "a", 1), 0.0)
    changes = [bind(before, "s", instance, BindingReason.SLO, 1.0, 0) for instance in ("b", "c")]
    for heard, home, based_on, after in (
        (told("s", "a", 1), "c", 1, changes[1].id),
        (told("s", "b", 2, changes[0].id), "c", 2, changes[1].id),
        (told("s", "c", 3, changes[1].id), "c", 3, None),
        (told("s", "a", 2, "another's"), "a", 2, None),
    ):
        bindings, _ = known()
        bindings.apply(heard, 2.0)
        for change in changes:
            bindings.recall(change, 2.0)
        binding = bindings.get("s")
        assert binding is not None
        following = bind(bindings, "s", "elsewhere", BindingReason.SLO, 3.0, 0)
        assert (binding.instance, following.based_on, following.after) == (home, based_on, after)


class Answering:
    """The API for one session: it judges changes in order and reports its verdicts."""

    def __init__(self) -> None:
        self.held = Held(instance="a", version=1, router="other", change="told before")
        self.lost_moves = 0

    def take(self, changes: list[BindingChange], *, router: str = "own") -> list[str]:
        """Judge these changes and return those that lost."""
        lost = []
        for change in changes:
            verdict = judge(change, self.held)
            if verdict is Verdict.BIND:
                self.held = Held(instance=change.instance, version=next_version(change, self.held), router=router, change=change.id)
            elif verdict is Verdict.CONFLICT:
                lost.append(change.id)
        self.lost_moves += len(lost)
        return lost

    def word(self) -> Binding:
        return told("s", self.held.instance, self.held.version, self.held.change)


@examples(150)
@given(
    count=st.integers(1, 3 * MOST_PENDING),
    reports=st.lists(st.tuples(st.integers(1, 2 * MOST_PENDING), st.booleans(), st.booleans()), min_size=1, max_size=20),
    intruder=st.none() | st.integers(0, 20),
)
def test_after_an_outage_of_any_length_the_home_and_the_lost_moves_are_those_of_the_api(
    count: int, reports: list[tuple[int, bool, bool]], intruder: int | None
) -> None:
    bindings, _ = known()
    api = Answering()
    bindings.apply(api.word(), 0.0)
    unsent = [bind(bindings, "s", "bc"[number % 2], BindingReason.SLO, 1.0, 0) for number in range(count)]
    counted = 0
    for number, (size, streamed_first, streamed) in enumerate([*reports, (count, True, True)]):
        if number == intruder:
            theirs = BindingChange(
                id="theirs", pool=POOL, session="s", instance="d", reason=BindingReason.SLO, at=2.0, based_on=api.held.version
            )
            assert api.take([theirs], router="other") == []
            bindings.apply(api.word(), 2.0)
        sent, unsent = unsent[:size], unsent[size:]
        lost = api.take(sent)
        if streamed and streamed_first:
            bindings.apply(api.word(), 3.0)
        if lost:
            counted += bindings.apply(api.word(), 3.0, lost)
        if streamed and not streamed_first:
            bindings.apply(api.word(), 3.0)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.instance == api.held.instance
    assert counted in (0, api.lost_moves), "told by the stream first, they are not counted"
    following = bind(bindings, "s", "elsewhere", BindingReason.SLO, 4.0, 0)
    assert judge(following, api.held) is Verdict.BIND


def test_of_changes_that_nobody_answers_only_the_newest_are_kept() -> None:
    bindings, _ = known()
    changes = [bind(bindings, "s", "bc"[number % 2], BindingReason.SLO, 1.0, 0) for number in range(10 * MOST_PENDING)]
    references = [sys.getrefcount(change) for change in changes]
    assert references.count(max(references)) == MOST_PENDING
    assert references.count(min(references)) == len(changes) - MOST_PENDING


def test_a_first_binding_has_not_migrated() -> None:
    bindings, _ = known()
    bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.migrated_at is None


def test_the_echo_of_an_own_change_does_not_undo_a_later_own_change() -> None:
    bindings, _ = known()
    first = bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    bind(bindings, "s", "b", BindingReason.SLO, 1.0, 20)
    bindings.apply(told("s", "a", 1, first.id), 2.0)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.instance == "b"


def test_a_lost_race_takes_the_winner_even_at_the_version_hoped_for() -> None:
    bindings, loads = known()
    bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    bindings.apply(told("s", "c", 1), 2.0)
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.instance, binding.version) == ("c", 1)
    assert (loads["a"].sessions, loads["c"].sessions) == (0, 1)
    assert bind(bindings, "s", "b", BindingReason.SLO, 3.0, 0).based_on == 1


def test_a_version_not_newer_than_the_confirmed_one_is_ignored() -> None:
    bindings, _ = known()
    bindings.apply(told("s", "a", 4), 0.0)
    bindings.apply(told("s", "b", 4), 0.0)
    bindings.apply(told("s", "c", 3), 0.0)
    bindings.apply(told("s", None, 3), 0.0)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.instance == "a"


def test_a_session_that_ended_after_a_change_whose_answer_was_lost_is_forgotten() -> None:
    bindings, _ = known()
    change = bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    bindings.apply(told("s", None, 1, change.id), 1.0)
    assert bindings.get("s") is None


def test_a_session_that_ends_keeps_its_version() -> None:
    bindings, _ = known()
    bindings.apply(told("s", "a", 4), 0.0)
    bindings.apply(told("s", None, 4), 0.0)
    assert bindings.get("s") is None


def test_an_unbound_session_is_forgotten() -> None:
    bindings, loads = known()
    bindings.apply(told("s", "a", 1), 0.0)
    bindings.apply(told("s", None, 2), 0.0)
    bindings.apply(told("never", None, 2), 0.0)
    assert bindings.get("s") is None
    assert loads["a"].sessions == 0


def test_a_session_expires_after_its_ttl_without_use() -> None:
    bindings, loads = known()
    bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    bindings.touch("s", 30.0)
    bindings.expire(90.0)
    assert len(bindings) == 1
    bindings.expire(90.1)
    assert (len(bindings), loads["a"].sessions) == (0, 0)


def test_an_active_session_that_stays_is_reported_a_few_times_within_its_ttl() -> None:
    bindings, _ = known()
    bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    reports = [(at, bindings.touch("s", float(at))) for at in range(1, 61)]
    told_at = [at for at, change in reports if change is not None]
    assert told_at == [15, 30, 45, 60]
    refresh = reports[14][1]
    assert refresh is not None
    assert (refresh.instance, refresh.previous, refresh.based_on) == ("a", "a", 0)
    assert bindings.touch("unknown", 100.0) is None


def test_beyond_the_limit_the_least_recently_used_session_is_forgotten() -> None:
    bindings, _ = known()
    for number in range(5):
        bind(bindings, f"s{number}", "a", BindingReason.COLD, 0.0, 0)
    bindings.touch("s0", 1.0)
    bind(bindings, "s5", "a", BindingReason.COLD, 1.0, 0)
    assert bindings.get("s1") is None
    assert bindings.get("s0") is not None


def test_the_context_follows_the_last_turn() -> None:
    bindings, _ = known()
    bind(bindings, "s", "a", BindingReason.COLD, 0.0, 10)
    bindings.set_context("s", 99)
    bindings.set_context("nobody", 99)
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.context_tokens, binding.version) == (99, 1)


STEP = st.tuples(
    st.sampled_from(["bind", "apply", "expire", "unbind"]),
    st.sampled_from(["s", "t", "u"]),
    st.sampled_from(["a", "b", "c", "elsewhere"]),
    st.integers(1, 9),
)


@examples(100)
@given(st.lists(STEP, max_size=40))
def test_session_counts_always_equal_the_bindings_held(steps: list[tuple[str, str, str, int]]) -> None:
    bindings, loads = known()
    now = 0.0
    for action, session, instance, number in steps:
        now += number * 3
        if action == "bind":
            bind(bindings, session, instance, BindingReason.SLO, now, 0)
        elif action == "apply":
            bindings.apply(told(session, instance, number), now)
        elif action == "unbind":
            bindings.apply(told(session, None, number), now)
        else:
            bindings.expire(now)
        homes = [binding.instance for name in ("s", "t", "u") if (binding := bindings.get(name)) is not None]
        held = Counter(homes)
        assert {name: load.sessions for name, load in loads.items()} == {name: held[name] for name in loads}
        assert bindings.count("elsewhere") == held["elsewhere"]
    bindings.clear()
    assert all(load.sessions == 0 for load in loads.values())


def test_sessions_that_the_apis_snapshot_lacks_are_told_again_as_of_their_last_use() -> None:
    bindings, _ = known()
    for name, version in (("kept", 1), ("lost", 3), ("gone", 2)):
        bindings.apply(told(name, "a" if name != "gone" else "z", version), 1.0)
    bind(bindings, "pending", "b", BindingReason.COLD, 1.0, 10)
    bindings.touch("lost", 5.0)
    changes, missing = bindings.missing({"kept"}, 20.0)
    assert missing == 1, "one is there, one waits for an answer, and the instance of one has gone"
    (change,) = changes
    assert (change.session, change.instance, change.previous, change.based_on, change.at) == ("lost", "a", "a", 3, 5.0)
    assert judge(change, Held(instance=None, version=0, router="r")) is Verdict.BIND
    assert bindings.touch("lost", 21.0) is None, "it has just been told"
    assert bindings.missing({"kept", "lost"}, 22.0) == ([], 0)


def test_of_very_many_the_newest_are_told_at_once_and_the_others_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.routing.knowledge.bindings.MOST_TOLD", 2)
    bindings, _ = known()
    for number in range(5):
        bindings.apply(told(f"s{number}", "a", 1), float(number))
    changes, missing = bindings.missing(set(), 6.0)
    assert ([change.session for change in changes], missing) == (["s3", "s4"], 5)
    assert bindings.touch("s4", 7.0) is None
    later = bindings.touch("s0", 7.0)
    assert later is not None
    assert later.stays


def test_a_tenant_takes_over_a_home_of_older_routers_but_never_that_of_another_tenants_session() -> None:
    bindings, _ = known()
    mine, other = "1f2e3d4c5b6a7988", "8897a6b5c4d3e2f1"
    bindings.apply(told("chat", "a", 1), 0.0)
    bindings.apply(told(f"secret@{other}", "b", 1), 0.0)
    found = bindings.before_tenants(f"chat@{mine}")
    assert found is not None and found.instance == "a"
    assert bindings.before_tenants(f"secret@{other}@{mine}") is None, "the name looks like the identity of another's session"
