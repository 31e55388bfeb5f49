"""Finished tasks on a real database: each counts once, in the hour in which it ended, however late its turns arrive."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fairlead.reports.decisions import RequestOutcome
from fairlead_api.settings import Retention
from fairlead_client.resources.series import Series
from fairlead_testing.builders.turns import a_turn
from fairlead_testing.examples import examples
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

TARGETS: list[dict[str, Any]] = [
    {"name": "agents", "turnTime": "10s", "percentile": 50, "idle": "60s"},
    {"name": "default", "turnTime": "30s", "percentile": 90, "idle": "1h"},
]
CLASSES = [{"name": "agents", "priority": 5}, {"name": "batch", "priority": -5}]
IDLE = {"agents": 60, "default": 3600, "batch": 600}
LIMIT = {"agents": 10, "default": 30}
PARENTS = {"b": "a", "c": "b"}
SERVED, REFUSED = RequestOutcome.SERVED, RequestOutcome.REFUSED


async def with_targets(api: ApiInstance, *targets: dict[str, Any], version: int = 1) -> None:
    spec = {**SPEC, "slo": {"task": list(targets)}, "priorityClasses": CLASSES}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=version, generation=version, spec=spec))


def run(url: str, statement: str, *values: Any, **named: Any) -> list[Any]:
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute(statement.encode(), named or values)
        return found.fetchall() if found.description else []


def an_hour(api: ApiInstance, database_url: str, hours: int = 14) -> float:
    """Return a whole hour long past, since which the first version of the objectives is in force."""
    hour = api.clock().replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)
    run(database_url, "UPDATE slo_configs SET active_from = %s WHERE version = 1", hour - timedelta(hours=1))
    return hour.timestamp()


def lasting(session: str, seconds: float, at: float, **changes: Any) -> Any:
    return a_turn(session, 1, at=at, ended_seconds=seconds, sent_seconds=seconds / 2, **changes)


async def look(api: ApiInstance, at: float) -> None:
    await api.app.state.counting.look(datetime.fromtimestamp(at, UTC))


@dataclass(frozen=True)
class Turn:
    """A drawn turn, with times in seconds after the beginning."""

    session: str
    task: str
    at: int
    seconds: int
    priority_class: str
    outcome: RequestOutcome
    names_parent: bool

    @property
    def end(self) -> int:
        return self.at + self.seconds


def drawn_turns() -> st.SearchStrategy[list[Turn]]:
    return st.lists(
        st.builds(
            Turn,
            session=st.sampled_from("abc"),
            task=st.sampled_from(["", "t"]),
            at=st.integers(0, 7000),
            seconds=st.integers(0, 20),
            priority_class=st.sampled_from(sorted(IDLE)),
            outcome=st.sampled_from([SERVED, REFUSED]),
            names_parent=st.booleans(),
        ),
        min_size=1,
        max_size=9,
    )


def root(session: str, turns: list[Turn]) -> str:
    told = any(turn.session == session and turn.names_parent for turn in turns)
    return root(PARENTS[session], turns) if told and session in PARENTS else session


def by_the_rule(begun: float, turns: list[Turn]) -> Counter[tuple[float, str, str]]:
    """Return the sums of all these turns by hour, class and figure, when every task is over."""
    expected: Counter[tuple[float, str, str]] = Counter()
    for name in {turn.task or root(turn.session, turns) for turn in turns}:
        own = [turn for turn in turns if (turn.task or root(turn.session, turns)) == name]
        first, end = min(turn.at for turn in own), max(turn.end for turn in own)
        kind = min(turn.priority_class for turn in own if turn.at == first)
        over_at = begun + end + IDLE[kind]
        answered = all(turn.outcome is SERVED for turn in own if turn.end == end)
        is_judged, in_time = kind in LIMIT and answered, sum(turn.seconds for turn in own) <= LIMIT.get(kind, 0)
        figures = {
            "tasks": 1,
            "judged": int(is_judged),
            "in_time": int(is_judged and in_time),
            "broken_off": int(kind in LIMIT and not answered),
            "turns": len(own),
            "refusals": sum(turn.outcome is REFUSED for turn in own),
            "wall_microseconds": (end - first) * 1_000_000,
        }
        expected.update({(over_at // 3600 * 3600, kind, figure): value for figure, value in figures.items()})
    return +expected


def counted(database_url: str) -> Counter[tuple[float, str, str]]:
    figures = ("tasks", "judged", "in_time", "broken_off", "turns", "refusals", "wall_microseconds")
    rows = run(database_url, f"SELECT extract(epoch FROM bucket), priority_class, {', '.join(figures)} FROM task_rollups_1h")
    return +Counter({(float(row[0]), row[1], name): value for row in rows for name, value in zip(figures, row[2:], strict=True)})


@examples(15, suppress=[HealthCheck.function_scoped_fixture])
@given(
    turns=drawn_turns(), looks=st.lists(st.integers(0, 12_000), min_size=1, max_size=4).map(sorted), dice=st.randoms(use_true_random=False)
)
async def test_every_task_counts_once_however_late_its_turns_come_and_whenever_tasks_are_counted(
    api: ApiInstance, database_url: str, turns: list[Turn], looks: list[int], dice: Any
) -> None:
    """Turns arrive in any order, some after their task was counted; sessions get parents, so that tasks become one."""
    await with_targets(api, *TARGETS)
    begun = an_hour(api, database_url)
    run(database_url, "TRUNCATE session_trees, task_turns, finished_tasks, task_rollups_1h")
    made = [
        lasting(
            turn.session,
            turn.seconds,
            begun + turn.at,
            priority_class=turn.priority_class,
            outcome=turn.outcome,
            task=turn.task or None,
            parent=PARENTS.get(turn.session) if turn.names_parent else None,
        )
        for turn in turns
    ]
    dice.shuffle(made)
    for part, now in enumerate(looks):
        await api.router.post_report(a_report(f"{uuid4()}", traffic=tuple(made[part :: len(looks)])))
        await look(api, begun + now)
    await look(api, begun + 20_000)
    assert counted(database_url) == by_the_rule(begun, turns)
    assert run(database_url, "SELECT count(*) FROM task_turns WHERE count_at IS NOT NULL") == [(0,)], "and nothing is looked at again"


async def test_a_task_that_goes_on_leaves_its_hour_until_it_is_over_again(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, TARGETS[0])
    hour = an_hour(api, database_url)
    await api.router.post_report(a_report("r1", traffic=(lasting("s", 4, hour, priority_class="agents"),)))
    await look(api, hour + 120)
    assert [row[0] for row in run(database_url, "SELECT in_time FROM task_rollups_1h")] == [1]
    await api.router.post_report(a_report("r2", traffic=(lasting("s", 30, hour + 5000, priority_class="agents"),)))
    await look(api, hour + 5031)
    assert run(database_url, "SELECT * FROM task_rollups_1h") == [], "it goes on"
    await look(api, hour + 5030 + 60)
    assert run(database_url, "SELECT extract(epoch FROM bucket)::int, tasks, in_time, turns FROM task_rollups_1h") == [
        (int(hour) + 3600, 1, 0, 2)
    ]


async def test_a_late_turn_that_a_process_of_an_older_version_stores_is_counted(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, TARGETS[0])
    hour = an_hour(api, database_url)
    await api.router.post_report(a_report("r1", traffic=(lasting("s", 4, hour, priority_class="agents"),)))
    await look(api, hour + 120)
    assert run(database_url, "SELECT turns FROM task_rollups_1h") == [(1,)]
    run(  # as a version did that did not know count_at
        database_url,
        "INSERT INTO task_turns (pool_id, session, task, first_at, ended_at, turns) SELECT pool_id, session, task, %(at)s, %(at)s, 1 "
        "FROM task_turns ON CONFLICT (pool_id, session, task) DO UPDATE SET turns = task_turns.turns + excluded.turns, "
        "first_at = least(task_turns.first_at, excluded.first_at), ended_at = greatest(task_turns.ended_at, excluded.ended_at)",
        at=datetime.fromtimestamp(hour + 200, UTC),
    )
    await look(api, hour + 600)
    assert run(database_url, "SELECT turns FROM task_rollups_1h") == [(2,)]
    assert run(database_url, "SELECT count(*) FROM task_turns WHERE count_at IS NOT NULL") == [(0,)], "and nothing is looked at again"


async def test_tasks_whose_sum_no_column_can_hold_keep_no_others_from_being_counted(
    api: ApiInstance, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(CHAT, name="other")
    await with_targets(api, TARGETS[0])
    await api.pool_operator.put_pool_state(other, a_state(an_instance("b"), spec=SPEC, uid="uid-2"))
    hour = an_hour(api, database_url, 3)
    far = tuple(lasting(session, 1, hour, task="far") for session in ("a", "b"))
    await api.router.post_report(a_report("r1", traffic=far))
    run(database_url, "UPDATE task_turns SET prompt_tokens = %s", 2**63 - 1)
    well = (replace(lasting("well", 1, hour), pool=other), lasting("beside", 1, hour))
    await api.router.post_report(a_report("r2", traffic=well))
    for _ in range(2):
        await look(api, hour + 7200)
    assert run(database_url, "SELECT name, tasks FROM finished_tasks ORDER BY name") == [("beside", 1), ("well", 1)]
    assert run(database_url, "SELECT sum(tasks)::int FROM task_rollups_1h") == [(2,)]
    messages = [one.message for one in caplog.records if "left out of rollups" in one.message]
    assert messages == 2 * ["tasks that cannot be summed are left out of rollups"], "each session is looked at once"


async def test_the_time_between_turns_is_known_while_all_of_them_are_stored(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, TARGETS[0])
    hour = an_hour(api, database_url, 3)
    known = (
        lasting("main", 2, hour),
        lasting("main", 2, hour + 10),
        lasting("sub", 3, hour + 1, parent="main"),
        lasting("sub", 1, hour + 5),
    )
    await api.router.post_report(a_report("r1", traffic=(*known, lasting("gone", 1, hour), lasting("gone", 1, hour + 9))))
    run(
        database_url, "DELETE FROM recorded_requests WHERE at = to_timestamp(%s) AND session NOT IN (%s, %s)", hour, *_numbers(database_url)
    )
    await look(api, hour + 2000)
    rows = run(database_url, "SELECT name, tool_tasks, tool_microseconds FROM finished_tasks ORDER BY name")
    assert rows == [("gone", 0, 0), ("main", 1, 9_000_000)], "8 s of one session, 1 s of the other"


def _numbers(database_url: str) -> list[int]:
    return [row[0] for row in run(database_url, "SELECT number FROM session_trees WHERE session IN ('main', 'sub')")]


async def test_budgets_are_by_class_and_unknown_where_no_task_was_seen(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, *TARGETS)
    hour = an_hour(api, database_url, 5)
    turns = [lasting(f"s{number}", 5 if number < 7 else 15, hour + number, priority_class="agents") for number in range(10)]
    turns += [
        lasting("broken", 1, hour, priority_class="agents", outcome=REFUSED, instance=None),
        lasting("none", 1, hour, priority_class="batch"),
    ]
    await api.router.post_report(a_report("r1", traffic=tuple(turns)))
    await look(api, api.clock().timestamp())
    found = await api.viewer.slo_task_burn(CHAT)
    budgets = {one.priority_class: (one.percentile, one.budget_left) for one in found.budgets}
    assert budgets == {"agents": (50.0, pytest.approx(0.4)), "default": (90.0, None)}, (
        "batch has no target, and of default nothing was seen"
    )
    day = {one.priority_class: one for one in found.windows if one.window == "1d"}
    assert (day["agents"].tasks, day["agents"].late, day["agents"].allowed, day["agents"].broken_off) == (10, 3, 5.0, 1)
    assert day["agents"].burn == pytest.approx(0.6)
    assert day["agents"].burn_of_all == pytest.approx(4 / 5.5)
    assert (day["default"].tasks, day["default"].burn) == (0, None)
    shares = {one.priority_class: one for one in (await api.viewer.slo_tasks(CHAT)).shares}
    assert (shares["agents"].tasks, shares["agents"].in_time, shares["agents"].broken_off) == (10, 7, 1), "the same tasks"
    await with_targets(api, TARGETS[1], version=2)
    after = {one.priority_class: one for one in (await api.viewer.slo_task_burn(CHAT)).budgets}
    assert after["agents"].percentile is None
    assert after["agents"].budget_left == pytest.approx(0.4), "a target that is gone burnt its budget"


def values_of(found: Series, metric: str, part: str | None = None) -> list[float | None]:
    (one,) = [line for line in found.lines if (line.metric, line.part) == (metric, part)]
    return one.values


async def test_tasks_are_told_over_time_by_class_with_gaps_where_nothing_was_seen(api: ApiInstance, database_url: str) -> None:
    await with_targets(api, *TARGETS)
    hour = an_hour(api, database_url, 4)
    refused = {"outcome": REFUSED, "instance": None}
    turns = (
        lasting("quick", 4, hour, priority_class="agents"),
        lasting("slow", 8, hour + 10, priority_class="agents"),
        lasting("slow", 8, hour + 28, priority_class="agents"),
        lasting("batch", 2, hour + 7200, priority_class="batch"),
        lasting("batch", 1, hour + 7210, priority_class="batch", **refused),
    )
    loads = tuple(a_load("a", int(hour) + offset) for offset in (5, 3605))
    await api.router.post_report(a_report("r1", traffic=turns, loads=loads))
    await api.app.state.upkeep.roll_up(api.clock())
    await look(api, api.clock().timestamp())
    start, end = (datetime.fromtimestamp(hour + offset, UTC).isoformat() for offset in (0, 10_800))
    names = ["tasks", "task_attainment", "task_burn", "task_turns", "task_tool_time", "task_model_time", "task_refusals"]
    found = await api.viewer.series(names, CHAT, start=start, end=end, buckets=100)
    assert {line.step_seconds for line in found.lines} == {3600}
    assert values_of(found, "tasks") == [2.0, 0.0, 1.0], "routers reported load in the second hour, and no task was over"
    assert values_of(found, "task_attainment") == [0.5, None, None]
    assert values_of(found, "task_burn") == [pytest.approx(1.0), None, None]
    assert values_of(found, "task_turns", "agents") == [1.5, None, None]
    assert values_of(found, "task_tool_time", "agents") == [pytest.approx(5.0), None, None], "none of quick, 10 s of slow"
    assert values_of(found, "task_model_time", "agents") == [pytest.approx(5.0), None, None]
    assert values_of(found, "task_refusals", "batch") == [None, None, 1.0]


async def test_rolled_up_tasks_go_with_the_rollups_and_stay_when_their_history_went(database_url: str) -> None:
    async with running_api(database_url, retention=Retention(history_days=1, rollups_1m_days=30)) as api:
        await with_targets(api, TARGETS[0])
        hour = an_hour(api, database_url)
        await api.router.post_report(a_report("r1", traffic=(lasting("s", 4, hour, priority_class="agents"),)))
        await look(api, hour + 3600)
        api.clock.skip(2 * 86_400)
        await api.app.state.upkeep.keep_days(api.clock())
        assert run(database_url, "SELECT count(*) FROM task_turns") == [(0,)]
        assert [one.tasks for one in (await api.viewer.slo_task_burn(CHAT)).windows if one.window == "30d"] == [1]
        api.clock.skip(31 * 86_400)
        await api.app.state.upkeep.keep_days(api.clock())
        assert run(database_url, "SELECT count(*) FROM task_rollups_1h") == [(0,)]
        assert run(database_url, "SELECT count(*) FROM finished_tasks") == [(0,)]
