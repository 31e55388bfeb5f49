"""`fairlead schedules forecast` against the fake public API."""

import json

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "operator") -> tuple[int, str, str]:
        return command("schedules", "forecast", "chat", *arguments, role=role)

    return one


def test_a_forecast_is_shown_with_its_schedules_and_that_their_trial_is_still_computed(run: Command) -> None:
    code, out, _ = run(role="viewer")
    assert code == 0
    assert "a start takes 4 min (measured)" in out
    assert "forecast-" in out
    assert "or more" in out
    assert "is being computed; ask again in a minute" in out


def test_the_forecast_as_json_is_that_of_the_api(run: Command) -> None:
    code, out, _ = run("-o", "json", role="viewer")
    assert code == 0
    found = json.loads(out)
    assert found["start_seconds"] == 240.0
    assert found["schedules"]
    assert len(found["quarters"]) == 7 * 24 * 4


def test_the_proposed_schedules_become_a_plan_that_is_applied_after_a_question(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("--plan", "--yes")
    assert code == 0, out
    (plan,) = fake.book.plans.values()
    assert plan.kind == "schedule"
    assert "forecast-" in plan.patch
    assert fake.book.applied


def test_a_viewer_may_look_and_not_plan(run: Command, fake: FakePublicApi) -> None:
    code, _, err = run("--plan", "--yes", role="viewer")
    assert code != 0
    assert "role" in err
    assert not fake.book.plans
