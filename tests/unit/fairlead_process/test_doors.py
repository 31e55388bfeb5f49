"""Limits of connections for each port of a process."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.doors import FILES_KEPT_BACK, MOST_LOOKED_AT, Door, DoorPlan, shares
from fairlead_testing.examples import examples

PLANS = st.builds(DoorPlan, name=st.just("main"), wanted=st.integers(1, 20_000), files=st.integers(1, 2))
SIDES = st.lists(st.tuples(st.integers(1, 2_000), st.integers(1, 2)), max_size=6).map(
    lambda pairs: tuple(DoorPlan(name=str(number), wanted=wanted, files=files) for number, (wanted, files) in enumerate(pairs))
)


@examples(200)
@given(PLANS, SIDES, st.integers(FILES_KEPT_BACK + 200, 100_000))
def test_all_doors_full_leave_the_files_that_are_kept_back(main: DoorPlan, sides: tuple[DoorPlan, ...], files: int) -> None:
    found = shares(main, sides, files)
    assert sum(plan.files * found[plan.name] for plan in (main, *sides)) <= files - FILES_KEPT_BACK
    for plan in (main, *sides):
        assert 1 <= found[plan.name] <= plan.wanted
    if files >= FILES_KEPT_BACK + main.files * main.wanted + 16 * sum(side.files * side.wanted for side in sides):
        assert all(found[plan.name] == plan.wanted for plan in (main, *sides))


@dataclass(eq=False)
class Visitor:
    """A connection that sends a request, or nothing."""

    idle: bool = True
    turned_away: bool = False
    log: list[str] = field(default_factory=list)

    def may_go(self) -> bool:
        self.log.append("looked at")
        return self.idle

    def turn_away(self) -> None:
        self.turned_away = True


def test_who_asks_for_nothing_gives_the_place_to_a_newcomer_and_who_asks_keeps_it() -> None:
    door = Door(3)
    busy, idle, later = Visitor(idle=False), Visitor(), Visitor()
    assert all(door.enter(one) for one in (busy, idle, later))
    assert door.enter(Visitor(idle=False))
    assert (busy.turned_away, idle.turned_away, later.turned_away) == (False, True, False), "the oldest"
    door.leave(idle)
    assert door.inside == 3, "its end is not counted twice"
    later.idle = False
    assert not door.enter(Visitor())
    door.leave(busy)
    assert door.enter(Visitor())


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(["enter", "leave"]), st.booleans()), max_size=200), st.integers(1, 20))
def test_a_door_never_holds_more_than_it_may_nor_turns_away_who_asks(steps: list[tuple[str, bool]], most: int) -> None:
    door, inside = Door(most), list[Visitor]()
    for step, idle in steps:
        if step == "enter":
            visitor = Visitor(idle=idle)
            if door.enter(visitor):
                inside.append(visitor)
            else:
                assert all(not one.idle for one in inside[-MOST_LOOKED_AT:]) or most > MOST_LOOKED_AT
        elif inside:
            door.leave(inside.pop())
        inside = [one for one in inside if not one.turned_away]
        assert len(inside) == door.inside <= most
        assert not any(one.turned_away and not one.idle for one in inside)


def test_a_flood_at_a_full_door_looks_at_few_of_those_inside_each_time() -> None:
    door = Door(1000)
    inside = [Visitor(idle=False) for _ in range(1000)]
    assert all(door.enter(one) for one in inside)
    assert not any(door.enter(Visitor()) for _ in range(10))
    assert sum(len(one.log) for one in inside) == 10 * MOST_LOOKED_AT
    assert max(len(one.log) for one in inside) == 1, "in turns, so that everybody is found"
