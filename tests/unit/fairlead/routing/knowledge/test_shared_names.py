"""When a session name counts as the name of a single session."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.shared_names import AT_ONCE, MOST_REMEMBERED, Hold, SharedNames

KEEP = 600.0


class Clients:
    """Requests with the same session name. `ask` sends one, `answer` answers the oldest one with this beginning."""

    def __init__(self) -> None:
        self.names = SharedNames(KEEP)
        self.now = 0.0
        self.open: list[tuple[int, Hold]] = []

    def ask(self, beginning: int, *blocks: int) -> bool:
        self.now += 0.1
        self.open.append((beginning, self.names.hold("n", beginning, blocks, self.now)))
        return self.names.is_shared("n", self.now)

    def answer(self, beginning: int) -> None:
        place = next(place for place, (begins, _) in enumerate(self.open) if begins == beginning)
        self.names.let_go([self.open.pop(place)[1]])

    def answer_all(self) -> None:
        while self.open:
            self.answer(self.open[0][0])


def test_turns_one_after_the_other_are_a_session_however_many_and_however_they_begin() -> None:
    one = Clients()
    for turn in range(200):
        assert not one.ask(turn // 20 + 1, 1, 2, turn)
        one.answer_all()
    assert len(one.names) == 0


def test_a_few_parallel_calls_are_a_session_and_one_more_is_none() -> None:
    agent = Clients()
    for _ in range(50):
        assert not any(agent.ask(1, 1, 2) for _ in range(AT_ONCE))
        agent.answer_all()
    assert [agent.ask(1, 1, 2) for _ in range(AT_ONCE + 1)] == [False] * AT_ONCE + [True]


def test_an_agent_with_titles_beside_it_and_one_sub_agent_is_a_session() -> None:
    agent = Clients()
    for turn in range(30):
        found = [agent.ask(1, 1, 2, turn), agent.ask(2, 5, 6, turn)]
        if turn < 2:
            found.append(agent.ask(100 + turn, 7))
        assert not any(found)
        agent.answer_all()


def test_three_clients_of_one_name_that_take_turns_at_once_are_found() -> None:
    three = Clients()
    found = False
    for turn in range(3):
        for client in (1, 2, 3):
            found = three.ask(client, client, 10 * client + turn) or found
        three.answer_all()
    assert found


def test_many_clients_of_one_name_with_single_requests_are_found_though_few_are_open_at_once() -> None:
    many = Clients()
    many.ask(1, 1)
    found = False
    for client in range(2, 30):
        found = many.ask(client, client) or found
        many.answer(client - 1)
    assert found


def test_turns_of_one_conversation_that_come_before_the_last_is_answered_are_one_session() -> None:
    hasty = Clients()
    for turn in range(1, 30):
        assert not hasty.ask(1, *range(turn))


def test_a_name_is_a_session_again_when_nothing_showed_for_long_that_it_is_shared() -> None:
    once = Clients()
    for _ in range(AT_ONCE + 1):
        once.ask(1, 1)
    once.answer_all()
    once.now += KEEP - 1
    assert once.ask(1, 1)
    once.answer_all()
    once.now += 2
    assert not once.ask(1, 1)


def test_what_another_router_found_counts_here() -> None:
    here = Clients()
    here.names.hear("n", 5.0, 6.0)
    assert here.names.is_shared("n", 5.0 + KEEP - 1)
    assert not here.names.is_shared("n", 5.0 + KEEP)


def test_a_router_whose_clock_is_ahead_makes_no_name_shared_for_longer() -> None:
    here = Clients()
    here.names.hear("n", 1e9, 6.0)
    assert not here.names.is_shared("n", 6.0 + KEEP)


def test_names_that_other_routers_tell_of_fill_no_memory() -> None:
    names = SharedNames(KEEP)
    for number in range(MOST_REMEMBERED + 100):
        names.hear(f"n{number}", 1.0, 1.0)
    assert len(names) == MOST_REMEMBERED


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.lists(st.integers(0, 2), max_size=4), st.booleans()), max_size=120))
def test_whatever_comes_counts_end_where_they_began_and_few_at_once_with_one_beginning_are_never_shared(
    steps: list[tuple[int, int, list[int], bool]],
) -> None:
    names = SharedNames(KEEP)
    held: list[Hold] = []
    most: dict[str, int] = {}
    begun: dict[str, set[int]] = {}
    for number, (name, beginning, blocks, ends) in enumerate(steps):
        if ends and held:
            names.let_go([held.pop(number % len(held))])
            continue
        held.append(names.hold(f"n{name}", beginning, blocks, float(number)))
        open_now = sum(one.name == f"n{name}" for one in held)
        most[f"n{name}"] = max(most.get(f"n{name}", 0), open_now)
        begun.setdefault(f"n{name}", set()).add(beginning)
        if names.is_shared(f"n{name}", float(number)):
            assert most[f"n{name}"] > AT_ONCE or len(begun[f"n{name}"]) > 2
    names.let_go(held)
    assert not names._used
