"""What a router tells the control API of the prefix caches it knows."""

from fairlead.reports.engines import KnownCache
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.knowledge import known_caches
from fairlead_router.kv_events.metrics import Belief
from fairlead_testing.builders.routing import POOL


def rank(number: int, state: str, *, blocks: int = 0, lag: float | None = None, gaps: int = 0) -> EventReading:
    return EventReading(
        rank=number,
        state=state,
        events=9,
        lag_seconds=lag,
        blocks=blocks,
        gaps=gaps,
        replays=gaps,
        restarts=0,
        batches_lost=0,
        unreadable=0,
    )


def belief(*pairs: tuple[int, int]) -> Belief:
    found = Belief()
    for predicted, reported in pairs:
        found.compare(predicted, reported)
    return found


def known(ranks: list[EventReading], **beliefs: Belief) -> list[KnownCache]:
    by_basis = {("a", basis): one for basis, one in beliefs.items()}
    return list(known_caches(POOL, ["a", "b"], {(str(POOL), "a"): ranks} if ranks else {}, by_basis))


def test_an_instance_is_as_well_heard_as_its_least_heard_rank() -> None:
    (one,) = known([rank(0, "current", blocks=5, lag=0.2), rank(1, "replaying", blocks=7, lag=0.1, gaps=2)])
    assert (one.instance, one.state, one.blocks, one.lag_seconds, one.gaps) == ("a", "replaying", 12, 0.2, 2)
    (one,) = known([rank(0, "disconnected"), rank(1, "waiting")])
    assert (one.state, one.lag_seconds) == ("disconnected", None)


def test_beliefs_add_up_whatever_they_came_from() -> None:
    (one,) = known([rank(0, "current")], events=belief((16, 16), (32, 48)), history=belief((0, 16)))
    assert (one.answered, one.exact, one.believed_tokens, one.cached_tokens, one.wrong_tokens) == (3, 1, 48, 80, 32)


def test_an_instance_that_publishes_nothing_is_known_by_own_history_as_soon_as_it_has_answered() -> None:
    (one,) = known([], history=belief((16, 16)))
    assert (one.state, one.answered, one.exact) == ("silent", 1, 1)
    assert known([]) == []
