"""`fairlead slo` against the fake public API: tables for people, JSON for programs, a change by plan."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data import objectives
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.command_line import Command

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "viewer") -> tuple[int, str, str]:
        return command("slo", *arguments, role=role)

    return one


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        (("versions", "chat"), ["batch", "(-10)"]),
        (("attainment", "default/chat", "--from", "now-6h"), ["2", "batch", "400", "75.0%", "75.0%", "100.0%", "37", "0", "68.6%"]),
        (("tasks", "chat"), ["2", "batch", "600", "s", "(412", "s)", "7,200", "s", "(9,012", "s)", "90%", "40", "75.0%", "4", "68.2%"]),
        (("burn", "chat"), ["5m", "batch", "400", "100", "40.0", "2.50", "37", "0", "3.14"]),
        (("task-burn", "chat"), ["30d", "batch", "40", "10", "4.0", "2.50", "4", "3.18"]),
        (("what-if", "chat", "--ttft", "2s"), ["batch", "400", "75.0%", "0.0%", "missed", "37", "0"]),
    ],
)
def test_every_question_has_a_table_and_json(run: Command, arguments: tuple[str, ...], row: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert any(row == line.split()[: len(row)] or set(row) <= set(line.split()) for line in out.splitlines()), out
    code, out, _ = run(*arguments, "--json")
    assert (code, bool(json.loads(out))) == (0, True)


def test_a_budget_of_which_too_little_is_kept_says_so(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.burn(NOW, "default/chat")
    week = replace(known, budget_left=None, windows=[one for one in known.windows if one.window != "30d"])
    assert "not known" not in run("burn", "chat")[1]
    monkeypatch.setattr(objectives, "burn", lambda _now, _pool: week)
    assert "error budget of 30 days: not known, because records are not kept for 30 days" in run("burn", "chat")[1]


def test_budgets_of_tasks_are_said_by_class_and_unknown_where_no_task_was_seen(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run("task-burn", "chat")[1].splitlines()
    assert "batch: goal 90%; error budget of 30 days: -150.0% left" in lines
    assert "silent: goal 90%; error budget of 30 days: no tasks seen" in lines
    known = objectives.task_burns(NOW, "default/chat")
    of_a_week = [replace(one, budget_left=None) for one in known.budgets]
    week = replace(known, budgets=of_a_week, windows=[one for one in known.windows if one.window != "30d"])
    monkeypatch.setattr(objectives, "task_burns", lambda _now, _pool: week)
    assert "batch: goal 90%; error budget of 30 days: not known, because tasks are not kept for 30 days" in run("task-burn", "chat")[1]
    monkeypatch.setattr(objectives, "task_burns", lambda _now, _pool: replace(known, budgets=[], windows=[]))
    assert "has no target of tasks" in run("task-burn", "chat")[1]


def test_a_target_within_a_step_says_so(run: Command) -> None:
    assert "The numbers are exact for a target at the edge of a step" in run("what-if", "chat", "--ttft", "2.61s")[1]


def test_new_targets_are_planned_shown_and_applied(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("set", "chat", "--ttft", "3s", "--yes", "--reason", "promised", role="admin")
    assert (code, fake.world.spec(CHAT)["slo"]["ttft"]) == (0, "3s")
    assert "→ 3s" in out


def test_what_cannot_be_done_is_one_line(run: Command) -> None:
    for arguments, words in ((("set", "chat"), "at least one of"), (("what-if", "chat", "--ttft", "5"), "with a unit")):
        code, _, err = run(*arguments, role="admin")
        assert code != 0
        assert words in err
