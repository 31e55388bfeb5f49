"""`fairlead advice` against the fake public API: findings for people, JSON for programs, a remedy by plan."""

import json

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "operator") -> tuple[int, str, str]:
        return command("advice", *arguments, role=role)

    return one


def test_findings_are_told_with_their_harm_and_plan_worst_first(run: Command) -> None:
    code, out, _ = run(role="viewer")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(
        "  1. [bad] research/code serves 87.1 % of requests in time (goal 90 %) because 3 of 3 instances are saturated"
    )
    assert lines[1].strip() == "harm: 0.44 requests/s miss the objectives; plan: 6 replicas (--plan 1)"
    assert json.loads(run("--json")[1])["items"][0]["plan"]["replicas"] == 6


def test_of_one_pool_only_its_own_are_told_and_of_a_quiet_one_that_nothing_hurts(run: Command, fake: FakePublicApi) -> None:
    assert "research/code" not in run("chat")[1]
    fake.world.pools_known = []
    assert run()[1].startswith("Nothing hurts any pool")


def test_the_remedy_is_planned_and_applied(run: Command, fake: FakePublicApi) -> None:
    code, out, err = run("--plan", "1", "--yes", "--reason", "advice")
    assert (code, err) == (0, "")
    assert "/spec/replicas: 4 → 6" in out
    assert fake.world.desired == {CHAT: 8, CODE: 6}


def test_a_finding_without_a_plan_or_that_is_not_there_is_one_line(run: Command) -> None:
    found = json.loads(run("--json")[1])["items"]
    without = next(place for place, one in enumerate(found, 1) if one["plan"] is None)
    assert "no plan for" in run("--plan", str(without))[2]
    assert f"there is no finding {len(found) + 1}" in run("--plan", str(len(found) + 1))[2]
