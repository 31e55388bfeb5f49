"""Session trees on a real database: places, exact sums under races and replays, tasks, think times, and bounds."""

import asyncio
import random
import time
from dataclasses import replace

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.reports.traffic import RecordedRequest
from fairlead.session_trees import Evidence, Figures, Link, total
from fairlead_api.trees.growing import figures_of
from fairlead_client.problems import ApiProblem
from fairlead_testing.builders.turns import a_turn
from fairlead_testing.examples import examples
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain


async def with_instances(api: ApiInstance, *names: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in names)))


def ago(seconds: float) -> float:
    return time.time() - seconds


async def test_a_tree_has_its_sessions_turns_and_tasks_with_exact_sums(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    begun = ago(100)
    turns = (
        a_turn("main", 1, at=begun),
        a_turn("main", 1, 2, at=begun + 5, tool="Agent", instance="b"),
        a_turn("main:sub", 8, at=begun + 2, parent="main"),
        a_turn("main:sub", 8, 9, at=begun + 6, parent="main", tool="Bash"),
        a_turn(
            *("main", 1, 2, 3),
            at=begun + 10,
            instance=None,
            sent_seconds=None,
            ttft_seconds=None,
            output_tokens=None,
            cached_tokens=None,
            outcome=RequestOutcome.REFUSED,
            rejection=RejectionReason.QUEUE_FULL,
            decision="d1",
        ),
        a_turn("copy", 1, 2, 4, at=begun + 20),
    )
    await api.router.post_report(a_report("r1", bindings=(a_binding("main", "a"),), traffic=turns[:4]))
    await api.router.post_report(a_report("r2", bindings=(a_binding("main", "b", previous="a", based_on=1),), traffic=turns[4:]))
    tree = await api.viewer.tree(CHAT, "main:sub")
    assert (tree.pool, tree.root, tree.complete, tree.sessions_in_all) == ("default/chat", "main", True, 3)
    assert [(one.session, one.parent, one.link, one.evidence, one.depth) for one in tree.sessions] == [
        ("main", None, None, None, 0),
        ("main:sub", "main", Link.SUB_AGENT, Evidence.SENT, 1),
        ("copy", "main", Link.FORK, Evidence.PREFIX, 1),
    ]
    main = tree.sessions[0]
    assert (main.turns, main.refusals, main.moves, main.instance) == (3, 1, 1, "b")
    assert main.tool_seconds == pytest.approx(6.0)
    assert [(turn.session, turn.tool) for turn in tree.turns] == [
        *(("main", None), ("main:sub", None), ("main", "Agent"), ("main:sub", "Bash")),
        *(("main", None), ("copy", None)),
    ]
    second = tree.turns[2]
    assert (second.moved_from, second.instance) == ("a", "b")
    assert second.gap_seconds == pytest.approx(3.0)
    assert (tree.turns[4].rejection, tree.turns[4].decision) == (RejectionReason.QUEUE_FULL, "d1")
    (task,) = tree.tasks
    assert (task.task, task.named, task.sessions, task.turns, task.moves) == ("main", False, 3, 6, 1)
    assert task.wall_seconds == pytest.approx(22.0)
    assert task.tool_seconds == pytest.approx(3.0 + 3.0 + 2.0)
    assert (await api.viewer.tasks(CHAT)).tasks[0] == replace(task, tool_seconds=None)
    assert (await api.viewer.tree(CHAT, "copy")).root == "main"


async def test_tasks_that_clients_name_are_told_apart_from_the_rest_of_their_tree(api: ApiInstance) -> None:
    await with_instances(api, "a")
    begun = ago(100)
    turns = (
        a_turn("s", 1, at=begun, task="first"),
        a_turn("s", 1, at=begun + 10, task="second"),
        a_turn("t", 2, at=begun + 20, task="second", parent="s"),
        a_turn("t", 2, at=begun + 30, parent="s"),
    )
    await api.router.post_report(a_report("r1", traffic=turns))
    found = (await api.viewer.tasks(CHAT)).tasks
    assert [(one.task, one.named, one.sessions, one.turns) for one in found] == [
        ("s", False, 1, 1),
        ("second", True, 2, 2),
        ("first", True, 1, 1),
    ]
    assert {one.root for one in found} == {"s"}


@examples(12, suppress=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "a", "b", "c", "d"]), st.sampled_from(["", "t"])), min_size=1, max_size=8
    ),
    dice=st.randoms(use_true_random=False),
    repeats=st.integers(0, 4),
)
async def test_sums_are_those_of_the_turns_whatever_arrives_in_whatever_order_and_how_often(
    api: ApiInstance, steps: list[tuple[str, str, str]], dice: random.Random, repeats: int
) -> None:
    await with_instances(api, "a")
    run, begun = f"{id(steps)}-{len(steps)}-{repeats}-", ago(500)
    turns: list[RecordedRequest] = [
        a_turn(run + name, number, at=begun + number, parent=run + parent if parent else None, task=run + task if task else None)
        for number, (name, parent, task) in enumerate(steps)
    ]
    reports = [a_report(f"{run}{number}", router=f"router-{number % 2}", traffic=(turn,)) for number, turn in enumerate(turns)]
    sent = [*reports, *reports[:repeats]]
    dice.shuffle(sent)
    await asyncio.gather(*(api.router.post_report(report) for report in sent))
    trees = {}
    for name in {turn.name or "" for turn in turns}:
        tree = await api.viewer.tree(CHAT, name)
        trees[tree.root] = tree
        own = total(figures_of(turn) for turn in turns if turn.name == name)
        shown = next(one for one in tree.sessions if one.session == name)
        assert (shown.turns, shown.prompt_tokens, shown.output_tokens, shown.model_seconds) == _told(own)
    assert sum(len(tree.turns) for tree in trees.values()) == len(turns)
    figures = [one for tree in trees.values() for one in tree.sessions]
    assert sum(one.turns for one in figures) == len(turns)
    assert len({one.session for one in figures}) == len(figures), "each session belongs to one tree"


def _told(figures: Figures) -> tuple[int, int, int, float]:
    return figures.turns, figures.prompt_tokens, figures.output_tokens, figures.model_microseconds / 1e6


async def test_think_times_are_measured_by_tenant_and_tool(api: ApiInstance) -> None:
    await with_instances(api, "a")
    begun = ago(100)
    turns = (
        a_turn("s", 1, at=begun, tenant="key-1"),
        a_turn("s", 1, at=begun + 5, tenant="key-1", tool="Bash"),
        a_turn("s", 1, at=begun + 17, tenant="key-1"),
        a_turn("t", 1, at=begun + 20, tenant="key-2"),
    )
    await api.router.post_report(a_report("r1", traffic=turns))
    found = await api.viewer.think_times(CHAT)
    assert [(one.tenant, one.tool, one.turns, round(one.p50_seconds, 3)) for one in found.times] == [
        ("key-1", "", 1, 10.0),
        ("key-1", "Bash", 1, 3.0),
    ]
    assert found.since is not None and abs(found.since.timestamp() - begun) < 0.01


async def test_no_session_name_is_stored_with_the_requests_themselves(api: ApiInstance, database_url: str) -> None:
    await with_instances(api, "a")
    await api.router.post_report(a_report("r1", traffic=(a_turn("jane", 1, at=ago(9), parent="joe"),)))
    with psycopg.connect(plain(database_url)) as connection:
        rows = connection.execute("SELECT r::text FROM recorded_requests r").fetchall()
    assert len(rows) == 1 and "jane" not in rows[0][0] and "joe" not in rows[0][0]


async def test_a_session_without_recorded_requests_has_no_tree(api: ApiInstance) -> None:
    await with_instances(api, "a")
    await api.router.post_report(a_report("r1", traffic=(replace(a_turn("s", 1, at=ago(9)), name=None, session=None),)))
    assert (await api.viewer.tasks()).tasks == []
    with pytest.raises(ApiProblem) as found:
        await api.viewer.tree(CHAT, "s")
    assert found.value.problem.status == 404, "nobody knows it"
    await api.router.post_report(a_report("r2", bindings=(a_binding("s", "a"),)))
    tree = await api.viewer.tree(CHAT, "s")
    assert (tree.root, tree.sessions, tree.turns, tree.complete) == ("s", [], [], True), "its page says that none is recorded"


async def test_a_flood_of_sessions_that_name_one_parent_shows_a_bounded_tree_and_counts_all(api: ApiInstance) -> None:
    await with_instances(api, "a")
    begun = ago(900)
    turns = tuple(a_turn(f"child-{number}", number, at=begun + number / 10, parent="made-up") for number in range(450))
    await api.router.post_report(a_report("r1", traffic=turns))
    tree = await api.viewer.tree(CHAT, "child-7")
    assert (tree.root, len(tree.sessions), tree.sessions_in_all, tree.complete) == ("made-up", 200, 450, False)
    (task,) = tree.tasks
    assert (task.turns, task.sessions, task.tool_seconds) == (450, 450, None)
