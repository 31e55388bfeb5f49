"""`fairlead notices` against the fake public API."""

import io
import json

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "admin") -> tuple[int, str, str]:
        return command("notices", *arguments, role=role)

    return one


def test_a_webhook_is_made_listed_tested_and_deleted(run: Command) -> None:
    code, secret, told = run("create", "pager", "https://pager.example.com/private", "--kind", "instance.lost", "--pool", "default/chat")
    assert (code, secret.strip()) == (0, "whsec_c2hvd24tb25jZQ==")
    assert "sends to https://pager.example.com" in told
    code, out, _ = run("webhooks", role="viewer")
    line = next(line for line in out.splitlines() if "pager" in line)
    assert code == 0 and line.split()[2:6] == ["https://pager.example.com", "json", "instance.lost", "default/chat"]
    assert "private" not in out and "whsec_" not in out
    assert run("test", line.split()[0])[:2] == (0, "Notice msg_2: delivered (204)\n")
    assert run("delete", line.split()[0], "--yes")[:2] == (0, f"Webhook {line.split()[0]} is deleted.\n")


def test_an_address_is_read_from_standard_input(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("https://hooks.slack.com/services/private\n"))
    made = json.loads(run("create", "slack", "-", "--form", "slack", "-o", "json")[1])
    assert (made["origin"], made["form"]) == ("https://hooks.slack.com", "slack")


def test_notices_are_listed_with_their_newest_attempt(run: Command) -> None:
    out = run("list", role="viewer")[1]
    assert next(line for line in out.splitlines() if "msg_1" in line).split()[-2:] == ["answered", "503"]
    assert "msg_1" not in run("list", "--webhook", "wh-0", role="viewer")[1]
    assert [one["id"] for one in json.loads(run("list", "-o", "json", role="viewer")[1])] == ["msg_1", "msg_0"]


def test_a_test_that_is_not_delivered_is_code_1(run: Command, fake: FakePublicApi) -> None:
    fake.webhooks.fail_tests_with = "answered 500"
    assert run("test", "wh-0")[:2] == (1, "Notice msg_2: answered 500\n")


def test_what_cannot_be_done_is_one_line(run: Command) -> None:
    code, _, told = run("create", "x", "ftp://x/private")
    assert (code, told.count("\n")) == (2, 1) and "url" in told and "private" not in told
    assert run("delete", "nope", "--yes")[0] == 1
    assert run("create", "x", "https://x", role="operator")[0] == 1


def test_a_proposal_is_listed_printed_as_a_patch_and_shown_with_its_reason_and_outcome(command: Command, fake: FakePublicApi) -> None:
    fake.book.make(CHAT, 10, "ada")
    made = fake.book.propose(CHAT, 9, "The operator advised 9 replicas")
    assert [one["id"] for one in json.loads(command("plans", "list", "--proposed", "-o", "json", role="viewer")[1])] == [made.id]
    assert command("plans", "patch", made.id, role="viewer")[1] == made.patch
    shown = command("plans", "show", made.id, role="viewer")[1]
    assert "Proposed: The operator advised 9 replicas" in shown and "Requests in time since" not in shown
    assert command("plans", "apply", made.id, "--yes", "--reason", "yes", role="operator")[0] == 0
    assert "97.0%; in the ten minutes before: 81.0%." in command("plans", "show", made.id, role="viewer")[1]
