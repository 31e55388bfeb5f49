"""Moves of sessions for causes that long random histories do not reach: for each cause, a scheduler that makes such a
move.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import SchedulerRecords
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import COPIES_THAT_PAY, MIGRATIONS_PAUSED, EarlyRejectionFacts, KvTransferFacts
from fairlead_testing.builders.routing import dispatches, having_seen, request, table


@dataclass(frozen=True)
class Served:
    """A served turn as routers keep it to decide on copies of prefixes."""

    request: RoutingRequest
    began: float
    at: float


CONTEXT = tuple(range(10, 14))
BY_CHANCE, BY_SCORE = "random-picker", "max-score-picker"


def turn(scheduler: PoolScheduler, name: str, at: float, **more: Any) -> str:
    """Run a request of session s from start to end, and return its instance."""
    (sent,) = dispatches(scheduler.submit(replace(_asked(name, at), **more), at))
    scheduler.first_token(name, at + 0.1)
    scheduler.complete(name, at + 0.2, 5, None)
    return sent.instance


def cold() -> PoolScheduler:
    scheduler = PoolScheduler(table(2, policy="sticky"), "router-0", 1)
    turn(scheduler, "a", 0.0)
    return scheduler


def idle_instance() -> PoolScheduler:
    """Return a scheduler with a session that was sent to an idle instance.

    Its request was predicted to be late everywhere, and only its home was busy.
    """
    facts = table(2, policy="sticky", rejection=EarlyRejectionFacts(mode="Load", headroom=1.0))
    scheduler = having_seen(PoolScheduler(facts, "router-0", 1))
    home = turn(scheduler, "a", 0.0)
    scheduler.submit(replace(request("crowd", 400_000, at=1.0), within=(home,)), 1.0)
    assert turn(scheduler, "b", 1.1, prompt_tokens=400_000) != home
    return scheduler


def outside_subset() -> PoolScheduler:
    scheduler = PoolScheduler(table(2, policy="sticky"), "router-0", 1)
    home = turn(scheduler, "a", 0.0)
    turn(scheduler, "b", 1.0, within=tuple({"i00", "i01"} - {home}))
    return scheduler


def engine_stalled() -> PoolScheduler:
    scheduler = PoolScheduler(table(2, policy="sticky"), "router-0", 1)
    scheduler.instance_stalled(turn(scheduler, "a", 0.0), 0.5, stalled=True)
    turn(scheduler, "b", 1.0)
    return scheduler


def no_room() -> PoolScheduler:
    """Return a scheduler in which a move of a session is dropped, because its target is full when the request is
    sent.
    """
    scheduler = _waiting_to_move()
    scheduler.observe_engine("i01", 0.99, 2.5)
    scheduler.first_token("other", 3.0)
    return scheduler


def session_moved() -> PoolScheduler:
    """Return a scheduler in which a waiting move is dropped, because another request moves the session to a third
    instance.
    """
    scheduler = _waiting_to_move(3)
    scheduler.first_token("third", 2.5)
    scheduler.submit(_asked("c", 2.5), 2.5)
    scheduler.first_token("other", 3.0)
    scheduler.first_token("c", 3.5)
    return scheduler


def operator() -> PoolScheduler:
    """Return a scheduler in which a decided move is dropped, because somebody pauses migrations before it is made."""
    scheduler = _waiting_to_move()
    facts = scheduler.table
    scheduler.update_table(replace(facts, version=2, routing=replace(facts.routing, migrations=MIGRATIONS_PAUSED)), 2.5)
    scheduler.first_token("other", 3.0)
    scheduler.first_token("crowd", 4.0)
    return scheduler


def drawn() -> PoolScheduler:
    return _picked(BY_CHANCE, [{"pluginRef": "session-affinity-scorer"}])


def best_score() -> PoolScheduler:
    return _picked(BY_SCORE, [{"pluginRef": "session-affinity-scorer", "weight": 0.1}, {"pluginRef": "queue-scorer", "weight": 9.0}])


def filtered_out() -> PoolScheduler:
    return _picked(BY_SCORE, [{"pluginRef": "utilization-filter"}, {"pluginRef": "session-affinity-scorer"}])


def prefix_copied() -> PoolScheduler:
    """Return a scheduler that copies a prefix to i01, because two sessions at i00 begin with the same prompt."""
    facts = table(2, policy="sticky")
    transfer = KvTransferFacts(tokens_per_second=1e6, copies=COPIES_THAT_PAY)
    scheduler = PoolScheduler(replace(facts, engine=replace(facts.engine, kv_transfer=transfer)), "router-0", 1)
    asked = [replace(_asked(name, 0.0), session=name, movable=True, within=("i00",)) for name in "ab"]
    for one in asked:
        scheduler.submit(one, 0.0)
        scheduler.first_token(one.id, 0.1)
        scheduler.complete(one.id, 0.2, 5, None)
    copy = scheduler.copy_due([Served(request=one, began=0.2, at=0.2) for one in asked], 1.0)
    assert copy is not None
    scheduler.copied(copy, CacheTransfer(fate=CacheFate.MOVED, seconds=0.1, tokens=2_048), 1.1)
    return scheduler


def triggers(records: SchedulerRecords) -> set[BindingReason]:
    """Return the triggers of all moves of sessions and of single requests, and the reasons of all first placements."""
    moves = {move.trigger for move in (*records.migrations, *records.reroutes)}
    return moves | {change.reason for change in records.bindings if change.previous is None}


SCENARIOS: Mapping[BindingReason, Callable[[], PoolScheduler]] = MappingProxyType(
    {
        BindingReason.COLD: cold,
        BindingReason.IDLE_INSTANCE: idle_instance,
        BindingReason.OUTSIDE_SUBSET: outside_subset,
        BindingReason.ENGINE_STALLED: engine_stalled,
        BindingReason.NO_ROOM: no_room,
        BindingReason.SESSION_MOVED: session_moved,
        BindingReason.OPERATOR: operator,
        BindingReason.DRAWN: drawn,
        BindingReason.BEST_SCORE: best_score,
        BindingReason.FILTERED_OUT: filtered_out,
        BindingReason.PREFIX_COPIED: prefix_copied,
    }
)
"""A scenario for each cause that long random histories do not reach."""


def _asked(name: str, at: float) -> RoutingRequest:
    return request(name, 2_200, session="s", blocks=CONTEXT, at=at)


def _waiting_to_move(instances: int = 2) -> PoolScheduler:
    """Return a scheduler in which session s is bound to the hot instance i00, and its request b waits to move it to
    i01.
    """
    parameters = {"hot_tokens": 3_000, "least_gain_seconds": -3600.0}
    scheduler = PoolScheduler(table(instances, policy="ear", parameters=parameters, kv_cache_tokens=10_000), "router-0", 1)
    turn(scheduler, "a", 0.0)
    others = [("other", 2_500), ("third", 2_900)][: instances - 1]
    for name, tokens in (*others, ("crowd", 9_000)):
        scheduler.submit(request(name, tokens, session=name, at=1.0), 1.0)
    assert scheduler.submit(_asked("b", 2.0), 2.0) == ()
    return scheduler


def _picked(picker: str, plugins: Sequence[Mapping[str, Any]]) -> PoolScheduler:
    """Return a scheduler after ten more turns of session s, while many requests wait at its first home."""
    parameters = {
        "session-affinity-scorer": {"strategy": "session_id"},
        "utilization-filter": {"conditions": [{"metric": "waiting-queue", "maxValue": 1}]},
    }
    config = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": name, "parameters": parameters.get(name, {})} for name in (*(one["pluginRef"] for one in plugins), picker)],
        "schedulingProfiles": [{"name": "default", "plugins": [*plugins, {"pluginRef": picker}]}],
    }
    scheduler = PoolScheduler(table(3, policy="endpoint-picker", parameters={"config": config}, window=1), "router-0", 1)
    home = turn(scheduler, "a", 0.0)
    for number in range(5):
        scheduler.submit(replace(request(f"crowd{number}", 20_000, at=1.0), within=(home,)), 1.0)
    for number in range(10):
        at = 2.0 + number
        scheduler.submit(_asked(f"b{number}", at), at)
    return scheduler
