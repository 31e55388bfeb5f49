"""Who wins a session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports import BindingChange, BindingReason
from fairlead.tables import PoolKey
from fairlead_api.services.binding_races import Held, Verdict, judge, next_version

POOL = PoolKey(namespace="n", name="p")


def change(instance: str, based_on: int = 0, previous: str | None = None) -> BindingChange:
    return BindingChange(pool=POOL, session="s", instance=instance, previous=previous, reason=BindingReason.COLD, at=0.0, based_on=based_on)


@pytest.mark.parametrize(
    ("wanted", "held", "router", "verdict"),
    [
        (change("a"), Held(instance=None, version=0, router="r0"), "r0", Verdict.BIND),
        (change("a"), Held(instance=None, version=7, router="r1"), "r0", Verdict.BIND),
        (change("a"), Held(instance="a", version=3, router="r1"), "r0", Verdict.TOUCH),
        (change("b", 2), Held(instance="a", version=3, router="r1"), "r0", Verdict.CONFLICT),
        (change("b", 3), Held(instance="a", version=3, router="r1"), "r0", Verdict.BIND),
        (change("b", 9), Held(instance="a", version=3, router="r1"), "r0", Verdict.BIND),
        (change("b", 0, "a"), Held(instance="a", version=1, router="r0"), "r0", Verdict.BIND),
        (change("b", 0, "c"), Held(instance="a", version=1, router="r0"), "r0", Verdict.CONFLICT),
    ],
)
def test_the_first_writer_wins_except_where_there_is_no_race(wanted: BindingChange, held: Held, router: str, verdict: Verdict) -> None:
    assert judge(wanted, held, router) is verdict


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.sampled_from(["r0", "r1"])), max_size=20))
def test_versions_only_grow(steps: list[tuple[str, int, str]]) -> None:
    held = Held(instance=None, version=0, router="")
    for instance, based_on, router in steps:
        wanted = change(instance, based_on, held.instance)
        if judge(wanted, held, router) is Verdict.BIND:
            version = next_version(wanted, held)
            assert version > held.version
            held = Held(instance=instance, version=version, router=router)
