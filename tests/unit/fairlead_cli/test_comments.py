"""`fairlead comments` against the fake public API."""

import json

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str) -> tuple[int, str, str]:
        return command("comments", *arguments, role="viewer")

    return one


def test_a_comment_is_added_listed_and_deleted(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("add", "default/chat", "load test", "--from", "now-1h", "--to", "now-30m")
    assert code == 0 and out.startswith("comment-1 is on default/chat, ")
    listed = run("list", "--pool", "default/chat", "--from", "now-50m")[1]
    assert "viewer-person" in listed and "load test" in listed and "comment-0" in listed
    code, out, _ = run("add", "default/chat", "agreed", "--plan", "p-0001", "-o", "json")
    assert json.loads(out)["plan"] == "p-0001"
    assert "agreed" in run("list", "--plan", "p-0001")[1]
    assert len(run("list", "-o", "csv")[1].splitlines()) == 4
    assert run("delete", "comment-1", "--yes")[:2] == (0, "comment-1 is deleted.\n")
    assert [one.id for one in fake.comments.comments] == ["comment-0", "comment-2"]


def test_what_cannot_be_done_is_one_line(run: Command) -> None:
    code, _, told = run("delete", "comment-0", "--yes")
    assert (code, told.count("\n")) == (1, 1)
    code, _, told = run("add", "default/chat", "x")
    assert code == 2 and "name the time with --from and --to, or a plan with --plan" in told
    assert "There is no comment" in run("list", "--plan", "none")[1]


def test_json_has_as_many_as_the_limit_and_says_that_there_are_more(run: Command) -> None:
    run("add", "default/chat", "one more", "--from", "now-1h")
    found = json.loads(run("list", "--limit", "1", "-o", "json")[1])
    assert (len(found["comments"]), found["complete"]) == (1, False)
