"""Targets of whole tasks on a real database: every task is judged by its version and class."""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import create_async_engine

from fairlead.reports.decisions import RequestOutcome
from fairlead.session_trees import TaskVerdict
from fairlead_api.trees.store.tasks import JudgedTasks, judged_tasks
from fairlead_testing.builders.turns import a_turn
from fairlead_testing.examples import examples
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain

TARGETS: list[dict[str, Any]] = [
    {"name": "agents", "turnTime": "10s", "percentile": 50, "idle": "60s"},
    {"name": "default", "wallTime": "100s", "turnTime": "30s", "idle": "1h"},
]
CLASSES = [{"name": "agents", "priority": 5}, {"name": "batch", "priority": -5}]
DAY = timedelta(days=1)


async def with_targets(api: ApiInstance, *targets: dict[str, Any], version: int = 1) -> None:
    spec = {**SPEC, "slo": {"task": list(targets)}, "priorityClasses": CLASSES}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=version, generation=version, spec=spec))


def since(database_url: str, **begun: float) -> None:
    """Put versions 1, 2, … of the objectives (v1=, v2=) in force since these Unix times."""
    with psycopg.connect(plain(database_url)) as connection:
        for name, at in begun.items():
            connection.execute(
                "UPDATE slo_configs SET active_from = to_timestamp(%s) WHERE version = %s", (at, int(name.removeprefix("v")))
            )


def lasting(session: str, seconds: float, at: float, **changes: Any) -> Any:
    return a_turn(session, 1, at=at, ended_seconds=seconds, sent_seconds=seconds / 2, **changes)


async def verdicts(api: ApiInstance) -> dict[str, TaskVerdict | None]:
    return {one.task: one.verdict for one in (await api.viewer.tasks(CHAT)).tasks}


async def test_a_task_is_in_time_late_broken_off_or_open_by_the_target_of_its_class(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, *TARGETS)
    now = time.time()
    since(database_url, v1=now - 5000)
    refused = {"outcome": RequestOutcome.REFUSED, "instance": None}
    turns = (
        lasting("quick", 4, now - 900, priority_class="agents", task="quick"),
        lasting("quick", 6, now - 800, priority_class="default", task="quick"),  # the class of the first turn counts
        lasting("slow", 11, now - 900, priority_class="agents", task="slow"),
        lasting("main", 8, now - 900, priority_class="agents"),
        lasting("sub", 8, now - 890, priority_class="agents", parent="main"),  # two sessions of a tree are one task
        lasting("long", 5, now - 900, task="long"),
        lasting("long", 5, now - 700, task="long"),  # 205 s of wall time
        lasting("fresh", 5, now - 65, task="fresh"),
        lasting("bad", 5, now - 900, priority_class="agents", task="bad"),
        lasting("bad", 1, now - 850, priority_class="agents", task="bad", **refused),
        lasting("none", 5, now - 900, priority_class="batch", task="none"),
        lasting("late and open", 50, now - 100, priority_class="agents", task="late and open"),
        lasting("before", 500, now - 6000, priority_class="agents", task="before"),  # before there was a target
    )
    await api.router.post_report(a_report("r1", traffic=turns))
    assert await verdicts(api) == {
        "quick": TaskVerdict.IN_TIME,
        "slow": TaskVerdict.LATE,
        "main": TaskVerdict.LATE,
        "long": TaskVerdict.LATE,
        "fresh": TaskVerdict.OPEN,
        "bad": TaskVerdict.BROKEN_OFF,
        "none": None,
        "late and open": TaskVerdict.LATE,
        "before": None,
    }
    (task,) = (await api.viewer.tree(CHAT, "quick")).tasks
    assert (task.verdict, task.priority_class) == (TaskVerdict.IN_TIME, "agents")


async def test_shares_are_by_version_and_class_and_the_operator_is_told_those_of_the_last_hour(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, *TARGETS)
    await with_targets(api, {"name": "agents", "turnTime": "30s", "percentile": 95, "idle": "60s"}, version=2)
    now = time.time()
    since(database_url, v1=now - 90_000, v2=now - 7_200)
    turns = [lasting(f"old-{number}", 5 + 10 * number, now - 50_000, priority_class="agents") for number in range(4)]
    turns += [lasting(f"new-{number}", 10 + 10 * number, now - 1_000, priority_class="agents") for number in range(4)]
    turns += [lasting("new-9", 1, now - 1_000, priority_class="agents", outcome=RequestOutcome.FAILED)]
    await api.router.post_report(a_report("r1", traffic=tuple(turns)))
    found = await api.viewer.slo_tasks(CHAT)
    assert [(one.version, one.priority_class, one.tasks, one.in_time, one.broken_off, one.met) for one in found.shares] == [
        (2, "agents", 4, 3, 1, False),
        (1, "agents", 4, 1, 0, False),
    ]
    newest, older = found.shares
    assert (newest.turn_time_seconds, newest.wall_time_seconds, newest.percentile) == (30.0, None, 95.0)
    assert (newest.attainment, newest.served_in_time, newest.turn_seconds) == (0.75, 0.6, 40.0)
    assert older.turn_seconds == 15.0, "half of four tasks took at most that"
    assert found.since is None
    lately = await api.viewer.slo_tasks(CHAT, start="now-1h")
    assert [one.version for one in lately.shares] == [2]
    spec = {**SPEC, "slo": {"task": [{"name": "agents", "turnTime": "30s", "percentile": 95, "idle": "60s"}]}, "priorityClasses": CLASSES}
    told = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=3, generation=2, spec=spec))
    (seen,) = told.tasks
    assert (seen.name, seen.tasks, seen.in_time, seen.broken_off) == ("agents", 4, 3, 1)
    versions = (await api.viewer.slo_versions(CHAT)).items
    assert [[(one.name, one.turn_time_seconds) for one in version.task] for version in versions] == [
        [("agents", 30.0)],
        [("agents", 10.0), ("default", 30.0)],
    ]


async def _judged(database_url: str, now: float, most: int) -> JudgedTasks:
    """Return the verdicts of the day before `now`, among the `most` newest sessions."""
    with psycopg.connect(plain(database_url)) as connection:
        (pool,) = connection.execute("SELECT id FROM pools").fetchone() or ()
    moment = datetime.fromtimestamp(now, UTC)
    engine = create_async_engine(database_url)
    async with engine.connect() as connection:
        found = await judged_tasks(connection, pool, moment - DAY, moment, moment, most=most)
    await engine.dispose()
    return found


async def test_of_very_many_tasks_the_newest_are_judged_and_the_answer_says_from_when(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, *TARGETS)
    now = time.time()
    since(database_url, v1=now - 5000)
    turns = tuple(lasting(f"s{number}", 1, now - 1000 + number, priority_class="agents") for number in range(6))
    await api.router.post_report(a_report("r1", traffic=turns))
    found = await _judged(database_url, now, most=4)
    assert [one.tasks for one in found.shares] == [4]
    assert found.since is not None
    assert found.since.timestamp() == pytest.approx(now - 1000 + 2 + 1, abs=0.001)


async def test_open_tasks_take_the_place_of_none_that_are_over(api: ApiInstance, database_url: str) -> None:
    """In a busy pool, the newest sessions are all within `idle` of their last turn."""
    await with_targets(api, TARGETS[0])
    now = time.time()
    since(database_url, v1=now - 5000)
    over = tuple(lasting(f"over-{number}", 1, now - 1000 + number, priority_class="agents") for number in range(3))
    fresh = tuple(lasting(f"open-{number}", 1, now - 20 + number, priority_class="agents") for number in range(6))
    await api.router.post_report(a_report("r1", traffic=over + fresh))
    assert [one.tasks for one in (await _judged(database_url, now, most=4)).shares] == [3]


async def test_a_pool_without_targets_judges_nothing(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", traffic=(lasting("s", 5000, time.time() - 9000),)))
    assert (await api.viewer.slo_tasks(CHAT)).shares == []
    assert await verdicts(api) == {"s": None}


@dataclass(frozen=True)
class Turn:
    """A drawn turn, with times in seconds after the beginning."""

    session: str
    task: str
    at: int
    seconds: int
    priority_class: str
    outcome: RequestOutcome


def drawn_turns() -> st.SearchStrategy[list[Turn]]:
    return st.lists(
        st.builds(
            Turn,
            session=st.sampled_from("abc"),
            task=st.sampled_from(["", "t", "u"]),
            at=st.integers(0, 300),
            seconds=st.integers(0, 40),
            priority_class=st.sampled_from(["agents", "default", "batch"]),
            outcome=st.sampled_from([RequestOutcome.SERVED, RequestOutcome.REFUSED, RequestOutcome.FAILED, RequestOutcome.CANCELLED]),
        ),
        min_size=1,
        max_size=9,
    )


@examples(15, suppress=[HealthCheck.function_scoped_fixture])
@given(turns=drawn_turns(), parts=st.integers(1, 4), dice=st.randoms(use_true_random=False))
async def test_every_share_is_that_of_the_tasks_one_by_one_however_their_turns_arrive(
    api: ApiInstance, database_url: str, turns: list[Turn], parts: int, dice: Any
) -> None:
    """Shares are compared with the plain rule, on turns whose reports arrive in any order."""
    await with_targets(api, *TARGETS)
    begun = time.time() - 5_000
    since(database_url, v1=begun - 100)
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute("TRUNCATE session_trees, task_turns")
    made = [
        lasting(
            turn.session, turn.seconds, begun + turn.at, priority_class=turn.priority_class, outcome=turn.outcome, task=turn.task or None
        )
        for turn in turns
    ]
    dice.shuffle(made)
    for part in range(parts):
        await api.router.post_report(a_report(f"{begun}-{part}", traffic=tuple(made[part::parts])))
    expected: Counter[tuple[str, str]] = Counter()
    for name in {turn.task or turn.session for turn in turns}:
        own = [turn for turn in turns if (turn.task or turn.session) == name]
        verdict = by_the_rule(own)
        if verdict is not None:
            expected[verdict] += 1
    found: Counter[tuple[str, str]] = Counter()
    for one in (await api.viewer.slo_tasks(CHAT)).shares:
        found[one.priority_class, "in-time"] += one.in_time
        found[one.priority_class, "late"] += one.tasks - one.in_time
        found[one.priority_class, "broken-off"] += one.broken_off
    assert +found == +expected


def by_the_rule(own: list[Turn]) -> tuple[str, str] | None:
    """Return the class and verdict of a finished task with these turns."""
    first, end = min(turn.at for turn in own), max(turn.at + turn.seconds for turn in own)
    priority_class = min(turn.priority_class for turn in own if turn.at == first)
    if priority_class == "batch":
        return None
    if any(turn.outcome in (RequestOutcome.REFUSED, RequestOutcome.FAILED) for turn in own if turn.at + turn.seconds == end):
        return priority_class, "broken-off"
    together = sum(turn.seconds for turn in own)
    late = together > 10 if priority_class == "agents" else together > 30 or end - first > 100
    return priority_class, "late" if late else "in-time"
