"""`fairlead audit views` and `fairlead audit list --view` against the fake public API."""

import json

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "operator") -> tuple[int, str, str]:
        return command("audit", *arguments, role=role)

    return one


def test_a_view_is_saved_listed_changed_and_deleted(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run(
        "views", "save", "chat's plans", "--pool", "default/chat", "--kind", "human", "--action", "plan.*", "--from", "now-7d"
    )
    assert (code, out) == (0, "View chat's plans is saved (view-2).\n")
    listed = run("views", "list")[1]
    assert "pool=default/chat kind=human action=plan.* from=now-7d" in listed and "my logins" not in listed
    assert run("views", "change", "view-2", "--name", "plans", "--shared")[1] == "View plans (view-2) is shared.\n"
    assert run("views", "change", "view-2", "--private")[1] == "View plans (view-2) is private.\n"
    assert json.loads(run("views", "list", "-o", "json")[1])[-1]["name"] == "plans"
    assert run("views", "delete", "view-2", "--yes")[:2] == (0, "View view-2 is deleted.\n")
    assert len(fake.audit_views.views) == 2


def test_a_list_has_the_filters_of_a_view_and_those_given_stand_in_for_them(run: Command) -> None:
    def actions(*arguments: str) -> set[str]:
        return {one["action"] for one in json.loads(run("list", "-o", "json", *arguments, role="viewer")[1])}

    assert actions("--view", "my logins") == actions("--view", "view-1") == actions("--action", "login") == {"login"}
    assert actions("--view", "my logins", "--action", "plan.applied") == actions("--action", "plan.applied") != set()


def test_what_cannot_be_done_is_one_line(run: Command) -> None:
    code, _, told = run("list", "--view", "nope")
    assert (code, told.count("\n")) == (2, 1) and "--view" in told and "nope" in told
    run("views", "save", "twice")
    code, _, told = run("views", "save", "twice")
    assert (code, told.count("\n")) == (1, 1) and "already has a view" in told
    assert run("views", "save", "mine", "--shared", role="viewer")[0] == 1
