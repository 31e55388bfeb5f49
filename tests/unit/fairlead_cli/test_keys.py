"""`fairlead keys` against the fake public API: lists, makes and revokes keys, tells their use, and complains in one
line.
"""

import json

import pytest

from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "operator") -> tuple[int, str, str]:
        return command("keys", *arguments, role=role)

    return one


def test_a_key_is_made_listed_and_revoked(run: Command) -> None:
    code, secret, told = run("create", "team-x", "--pool", "default/chat", "--days", "30", "--requests-per-minute", "60")
    assert (code, secret.strip()) == (0, "flk_shown-once")
    assert "gives access to default/chat; limits per minute: 60 requests; budgets: none" in told
    code, out, _ = run("list", role="viewer")
    line = next(line for line in out.splitlines() if "team-x" in line)
    assert code == 0
    assert "default/chat" in line
    assert "60 requests" in line
    assert "expires 2" in line
    assert line.split()[-2:] == ["never", "nothing"]
    used = next(line for line in out.splitlines() if "search" in line)
    assert "18,204 requests, 44,250,589 tokens, 123 refused" in used
    assert "shown-once" not in out
    assert run("revoke", line.split()[0], "--yes")[:2] == (0, f"Key {line.split()[0]} is revoked.\n")
    assert "revoked 2" in next(line for line in run("list")[1].splitlines() if "team-x" in line)


@pytest.mark.parametrize(("model", "warned"), [("Qwen/Qwen3-32B", False), ("llama-3.1-8b", True), ("qwen/qwen3-32b", True)])
def test_a_model_that_no_pool_declares_is_said_when_the_key_is_made(run: Command, model: str, warned: bool) -> None:
    code, secret, told = run("create", "team-z", "--model", model)
    assert (code, secret.strip()) == (0, "flk_shown-once")
    assert (f"No pool declares {model}; pools declare " in told) == warned
    assert json.loads(run("create", "team-z", "--model", model, "--json")[1])["models"] == [model]


def test_json_is_what_the_api_answers(run: Command) -> None:
    made = json.loads(run("create", "team-y", "--json")[1])
    assert (made["name"], made["secret"], made["pools"]) == ("team-y", "flk_shown-once", [])
    assert [key["secret"] for key in json.loads(run("list", "--json")[1]) if key["id"] == made["id"]] == [None]


def test_the_use_of_a_key_is_a_line_per_step_and_the_total(run: Command) -> None:
    code, out, _ = run("usage", "k-1", role="viewer")
    head, step, total = out.splitlines()
    counts = ["18,204", "41,300,512", "2,950,077", "3", "key-expired,", "120", "rejected-key-requests"]
    assert (code, head.split()[:2]) == (0, ["from", "requests"])
    assert step.split()[2:] == counts
    assert total.split() == ["total", *counts]
    asked = json.loads(run("usage", "k-1", "--from", "now-3h", "--json")[1])
    assert (asked["key"], asked["total"]["requests"], len(asked["points"])) == ("k-1", 18_204, 1)


def test_the_use_of_a_key_is_that_of_the_range_asked_for(run: Command) -> None:
    assert "k-1 was not used from" in run("usage", "k-1", "--from", "now-1h")[1]
    assert json.loads(run("usage", "k-1", "--to", "now-3h", "--json")[1])["points"] == []


def test_what_cannot_be_done_is_one_line(run: Command) -> None:
    assert run("create", "x", role="viewer")[0] == 1
    for command in (("revoke", "nobody", "--yes"), ("usage", "nobody")):
        code, _, told = run(*command)
        assert (code, "nobody" in told, len(told.splitlines())) == (1, True, 1)


def test_a_key_that_is_there_is_allowed_to_have_decisions_kept_and_forbidden_again(run: Command) -> None:
    code, out, _ = run("change", "k-0", "--explain")
    assert code == 0 and out.endswith("may ask that their routing decisions are kept.\n")
    explains = [line.split() for line in run("list")[1].splitlines() if line.startswith("k-0")]
    assert "yes" in explains[0]
    assert run("change", "k-0", "--no-explain")[1].endswith("may not ask that their routing decisions are kept.\n")
    assert run("change", "k-1", "--explain")[0] == 1, "it is revoked"
    assert run("change", "k-0")[0] == 2, "what is to change has to be said"


def test_the_budgets_of_a_key_are_said_when_it_is_made_and_in_the_list(run: Command) -> None:
    _, _, told = run("create", "team-y", "--budget-day", "25.00", "--budget-currency", "EUR")
    assert "budgets: 25.00 EUR a day" in told
    assert "25.00 EUR a day" in next(line for line in run("list")[1].splitlines() if "team-y" in line)
