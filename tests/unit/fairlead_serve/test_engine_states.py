"""The states of engines that were started by others, round by round."""

from dataclasses import dataclass, field, replace

import pytest

from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceObservation, PoolObservations
from fairlead.reconciling.observed import Warming
from fairlead_serve.engine_states import Health, ServedEngine, WantedEngine, next_round
from fairlead_testing.builders.instance_states import is_legal

WELL = Health(ready=True)
SLOW = Health(ready=False, reason="NoAnswer", words="it does not answer within 5 s")
SILENT = Health(ready=False, reason="NoConnection", words="it does not accept connections")


def seen(*, in_flight: dict[str, int] | None = None, acknowledged: bool = True, routers: int = 1) -> PoolObservations:
    return PoolObservations(
        table_version=1,
        table_acknowledged=acknowledged,
        live_routers=routers,
        ttft_attainment=None,
        requests_per_second=0.0,
        instances=tuple(
            InstanceObservation(
                id=name, in_flight=(in_flight or {}).get(name, 0), bound_sessions=0, cache_tokens=0, acknowledged=acknowledged
            )
            for name in ("a", "b")
        ),
    )


@dataclass
class Engines:
    """Rounds one second apart, between which a test changes the wanted and the observed engines."""

    wanted: dict[str, WantedEngine] = field(default_factory=dict)
    health: dict[str, Health] = field(default_factory=dict)
    observations: PoolObservations | None = field(default_factory=seen)
    now: float = 1000.0
    known: tuple[ServedEngine, ...] = ()
    told: list[str] = field(default_factory=list)
    words: str = ""
    """The message of the newest event."""

    def want(self, *names: str, **changes: bool) -> None:
        self.wanted = {name: WantedEngine(name=name, address=f"{name}:8000", **changes) for name in names}  # type: ignore[arg-type]  # only the booleans

    def round(self) -> dict[str, str]:
        self.now += 1
        before = {engine.uid: engine.state for engine in self.known}
        found = next_round(
            self.known,
            tuple(self.wanted.values()),
            self.health,
            self.observations,
            warming=Warming(),
            drain_timeout_seconds=30.0,
            uids={one.address: f"uid of {one.address}" for one in self.wanted.values()},
            now=self.now,
        )
        self.known = found.engines
        self.told += [event.reason for event in found.events]
        self.words = found.events[-1].message if found.events else self.words
        for engine in self.known:
            assert is_legal(before.get(engine.uid, InstanceState.STARTING), engine.state), "every step is a legal one"
        return {engine.name: engine.state.value for engine in self.known}

    def serving(self, *names: str) -> "Engines":
        self.want(*names)
        self.health = dict.fromkeys(names, WELL)
        while set(self.round().values()) != {"Serving"}:
            assert self.now < 1100
        self.told.clear()
        return self


def test_an_engine_serves_once_it_answers_and_every_router_knows_it() -> None:
    engines = Engines(observations=seen(acknowledged=False))
    engines.want("a")
    engines.health["a"] = SILENT
    engines.round()
    assert engines.round() == {"a": "Starting"}
    assert engines.known[0].reason == "NoConnection"
    engines.health["a"] = WELL
    assert engines.round() == {"a": "Warming"}
    assert engines.round() == {"a": "Warming"}
    engines.observations = seen()
    assert engines.round() == {"a": "Serving"}


def test_an_engine_that_does_not_answer_leaves_the_table_and_comes_back() -> None:
    engines = Engines().serving("a", "b")
    engines.health["b"] = SILENT
    assert engines.round() == {"a": "Serving", "b": "Lost"}
    engines.health["b"] = WELL
    assert engines.round() == {"a": "Serving", "b": "Warming"}
    assert engines.told == ["EngineLost", "EngineBack"]


def test_after_a_restart_an_engine_is_what_it_was_until_it_has_been_asked() -> None:
    engines = Engines().serving("a", "b")
    engines.health = {}
    assert engines.round() == {"a": "Serving", "b": "Serving"}
    engines.health = {"a": WELL, "b": SILENT}
    assert engines.round() == {"a": "Serving", "b": "Lost"}


def test_an_engine_taken_out_of_the_file_leaves_when_it_is_empty() -> None:
    engines = Engines().serving("a", "b")
    engines.want("a")
    engines.observations = seen(in_flight={"b": 1})
    assert engines.round() == {"a": "Serving", "b": "Draining"}
    assert engines.round() == {"a": "Serving", "b": "Draining"}
    engines.observations = seen()
    assert engines.round() == {"a": "Serving"}
    assert engines.told == ["EngineDraining", "EngineRemoved"]


def test_it_does_not_leave_while_nobody_knows_whether_it_is_empty_but_not_for_ever() -> None:
    engines = Engines().serving("a", "b")
    engines.want("a")
    engines.observations = None
    for _ in range(30):
        assert engines.round()["b"] == "Draining"
    assert engines.round() == {"a": "Serving"}


def test_an_engine_that_comes_back_into_the_file_while_it_leaves_stays() -> None:
    engines = Engines().serving("a", "b")
    engines.observations = seen(in_flight={"b": 1})
    engines.want("a")
    engines.round()
    engines.want("a", "b")
    assert engines.round()["b"] == "Warming"
    assert not engines.known[1].leaving


def test_drained_on_request_it_stays_in_the_pool_until_that_is_taken_back() -> None:
    engines = Engines().serving("a", "b")
    engines.wanted["b"] = replace(engines.wanted["b"], drained="Requested")
    for _ in range(40):
        assert engines.round() == {"a": "Serving", "b": "Draining"}
    assert engines.known[1].reason == "Requested", "by this word the page offers to take it back"
    engines.health["b"] = SILENT  # it is restarted meanwhile
    assert engines.round()["b"] == "Lost"
    engines.health["b"] = WELL
    assert engines.round()["b"] == "Draining"
    engines.wanted["b"] = replace(engines.wanted["b"], drained=None)
    assert [engines.round()["b"] for _ in range(2)] == ["Warming", "Serving"]


@pytest.mark.parametrize(("drained", "why"), [("Requested", "on a person's request"), ("DrainedByFile", "as set in the file")])
def test_a_drain_tells_who_asked_for_it(drained: str, why: str) -> None:
    engines = Engines().serving("a", "b")
    engines.wanted["b"] = replace(engines.wanted["b"], drained=drained)
    engines.round()
    assert engines.words == f"b is emptied, {why}"


def test_cordoned_and_uncordoned_it_goes_out_of_service_and_back() -> None:
    engines = Engines().serving("a")
    engines.wanted["a"] = replace(engines.wanted["a"], cordoned=True)
    assert engines.round() == {"a": "Cordoned"}
    engines.wanted["a"] = replace(engines.wanted["a"], cordoned=False)
    assert engines.round() == {"a": "Serving"}


def test_an_engine_that_never_answered_leaves_at_once() -> None:
    engines = Engines()
    engines.want("a", "b")
    engines.health = {"a": WELL, "b": SILENT}
    engines.round()
    engines.want("a")
    assert set(engines.round()) == {"a"}


def test_another_address_under_the_same_name_is_another_engine() -> None:
    engines = Engines().serving("a")
    before = engines.known[0].uid
    engines.wanted["a"] = replace(engines.wanted["a"], address="elsewhere:8000")
    assert engines.round() == {"a": "Starting"}
    assert engines.known[0].uid != before


def test_engines_that_are_all_slow_stay_and_one_that_is_slower_than_others_leaves() -> None:
    engines = Engines().serving("a", "b")
    engines.health = {"a": SLOW, "b": WELL}
    assert engines.round() == {"a": "Lost", "b": "Serving"}
    engines.health = {"a": SLOW, "b": SLOW}
    for _ in range(3):
        states = engines.round()
    assert states["b"] == "Serving", "the last one is not taken out for being slow"
    assert states["a"] in ("Warming", "Serving"), "nor is it better than the other"
    engines.health = {"a": SILENT, "b": SLOW}
    assert engines.round()["a"] == "Lost"
    engines.health = {"a": SILENT, "b": SILENT}
    assert engines.round() == {"a": "Lost", "b": "Lost"}, "an engine that accepts no connection is not slow"
