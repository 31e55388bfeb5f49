from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.reports import Binding, BindingReason
from fairlead.routing.bindings import SessionBindings
from fairlead.routing.protocols import InstanceLoad
from routing_builders import POOL, entry


def known() -> tuple[SessionBindings, dict[str, InstanceLoad]]:
    loads = {name: InstanceLoad(entry=entry(name)) for name in ("a", "b", "c")}
    return SessionBindings(POOL, 60.0, loads, limit=5), loads


def told(session: str, instance: str | None, version: int) -> Binding:
    return Binding(
        pool=POOL, session=session, instance=instance, version=version, reason=BindingReason.DRAIN, bound_at=1.0, migrated_at=1.0
    )


def test_a_change_is_based_on_the_version_known_and_takes_the_next() -> None:
    bindings, loads = known()
    first = bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    second = bindings.bind("s", "b", BindingReason.SLO, 1.0, 20)
    assert (first.based_on, first.previous, second.based_on, second.previous) == (0, None, 1, "a")
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.instance, binding.version, binding.migrated_at) == ("b", 2, 1.0)
    assert (loads["a"].sessions, loads["b"].sessions) == (0, 1)


def test_a_first_binding_has_not_migrated() -> None:
    bindings, _ = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.migrated_at is None


def test_the_echo_of_an_own_change_does_not_undo_a_later_own_change() -> None:
    bindings, _ = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    bindings.bind("s", "b", BindingReason.SLO, 1.0, 20)
    bindings.apply(told("s", "a", 1), 2.0)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.instance == "b"


def test_a_lost_race_takes_the_winner_even_at_the_version_hoped_for() -> None:
    bindings, loads = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    bindings.apply(told("s", "c", 1), 2.0)
    binding = bindings.get("s")
    assert binding is not None
    assert (binding.instance, binding.version) == ("c", 1)
    assert (loads["a"].sessions, loads["c"].sessions) == (0, 1)
    assert bindings.bind("s", "b", BindingReason.SLO, 3.0, 0).based_on == 1


def test_a_version_not_newer_than_the_confirmed_one_is_ignored() -> None:
    bindings, _ = known()
    bindings.apply(told("s", "a", 4), 0.0)
    bindings.apply(told("s", "b", 4), 0.0)
    bindings.apply(told("s", "c", 3), 0.0)
    bindings.apply(told("s", None, 4), 0.0)
    binding = bindings.get("s")
    assert binding is not None
    assert binding.instance == "a"


def test_an_unbound_session_is_forgotten() -> None:
    bindings, loads = known()
    bindings.apply(told("s", "a", 1), 0.0)
    bindings.apply(told("s", None, 2), 0.0)
    bindings.apply(told("never", None, 2), 0.0)
    assert bindings.get("s") is None
    assert loads["a"].sessions == 0


def test_a_session_expires_after_its_ttl_without_use() -> None:
    bindings, loads = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    bindings.touch("s", 30.0)
    bindings.expire(90.0)
    assert len(bindings) == 1
    bindings.expire(90.1)
    assert (len(bindings), loads["a"].sessions) == (0, 0)


def test_an_active_session_that_stays_is_reported_a_few_times_within_its_ttl() -> None:
    bindings, _ = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
    reports = [(at, bindings.touch("s", float(at))) for at in range(1, 61)]
    told_at = [at for at, change in reports if change is not None]
    assert told_at == [15, 30, 45, 60]
    refresh = reports[14][1]
    assert refresh is not None
    assert (refresh.instance, refresh.previous, refresh.based_on) == ("a", "a", 1)
    assert bindings.touch("unknown", 100.0) is None


def test_beyond_the_limit_the_least_recently_used_session_is_forgotten() -> None:
    bindings, _ = known()
    for number in range(5):
        bindings.bind(f"s{number}", "a", BindingReason.COLD, 0.0, 0)
    bindings.touch("s0", 1.0)
    bindings.bind("s5", "a", BindingReason.COLD, 1.0, 0)
    assert bindings.get("s1") is None
    assert bindings.get("s0") is not None


def test_the_context_follows_the_last_turn() -> None:
    bindings, _ = known()
    bindings.bind("s", "a", BindingReason.COLD, 0.0, 10)
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


@settings(max_examples=100)
@given(st.lists(STEP, max_size=40))
def test_session_counts_always_equal_the_bindings_held(steps: list[tuple[str, str, str, int]]) -> None:
    bindings, loads = known()
    now = 0.0
    for action, session, instance, number in steps:
        now += number * 3
        if action == "bind":
            bindings.bind(session, instance, BindingReason.SLO, now, 0)
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
