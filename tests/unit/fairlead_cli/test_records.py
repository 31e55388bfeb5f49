"""The commands that look at what the control API recorded: as a table, JSON and CSV, again and again, and refusals in
one line.
"""

import csv
import io
import json
import os
import shlex
import sys
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path

import click
import pytest

from fairlead_cli import main as command_line
from fairlead_cli.printing import print_table
from fairlead_cli.subcommands import SUBCOMMANDS, Subcommand
from fairlead_client.resources.moves import Migration
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.running.command_line import Command

POOLS = len(INSTANCES)
LISTS = (
    "pools list",
    "instances list chat",
    "sessions list",
    "migrations list",
    "migrations list --requests",
    "decisions list",
    "rejections list",
    "schedules list",
    "schedules runs",
    "audit list",
)


@pytest.fixture(autouse=True)
def _elsewhere(fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run each test in a folder without a sandbox."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(fake: FakePublicApi, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    def command(arguments: str, role: str = "operator") -> tuple[int, str, str]:
        code = command_line.run([*shlex.split(arguments), "--token", f"{role}-token"])
        heard = capfdbinary.readouterr()
        return code, heard.out.decode(), heard.err.decode()

    return command


def test_cost_is_told_in_lines_that_add_up(run: Command) -> None:
    code, text, _ = run("cost --by key -o json")
    found = json.loads(text)
    assert code == 0
    assert sum(Decimal(one["amount"]) for one in found["lines"]) == Decimal(found["totals"][0]["amount"])
    code, table, _ = run("cost --by key")
    assert (code, "team a" in table, "Estimated: caching saved" in table) == (0, True, True)
    assert "instance hours (3.00 at prices of OpenCost)" in table
    code, text, _ = run("cost --by key -o csv")
    assert (code, len(list(csv.reader(io.StringIO(text)))) - 1) == (0, len(found["lines"]))


@pytest.mark.parametrize("command", LISTS)
def test_a_list_is_a_table_json_and_csv_of_the_same_rows(run: Command, command: str) -> None:
    code, table, _ = run(f"{command} --limit 3")
    assert (code, bool(table.strip())) == (0, True)
    code, text, _ = run(f"{command} --limit 3 -o json")
    assert code == 0
    found = json.loads(text)
    rows = found["groups"] if isinstance(found, dict) else found
    assert len(rows) <= 3 or isinstance(found, dict)
    code, text, _ = run(f"{command} --limit 2 -o csv")
    assert code == 0
    assert len(list(csv.reader(io.StringIO(text)))) <= 3


def test_csv_without_a_limit_is_the_whole_export(run: Command, fake: FakePublicApi) -> None:
    whole = list(csv.reader(io.StringIO(run("migrations list -o csv")[1])))
    assert whole[0] == [field.name for field in fields(Migration)]
    assert len(whole) - 1 == len(fake.world.migrations())


def test_more_rows_than_a_page_are_read_page_by_page(run: Command, fake: FakePublicApi) -> None:
    rows = json.loads(run("decisions list --limit 130 -o json")[1])
    assert len(rows) == min(130, len(fake.world.decisions()))
    assert len({row["id"] for row in rows}) == len(rows)


def test_filters_reach_the_api(run: Command) -> None:
    moved = json.loads(run("migrations list --limit 1 -o json")[1])[0]
    same = json.loads(run(f"migrations list --source {moved['source']} -o json")[1])
    assert {one["source"] for one in same} == {moved["source"]}
    assert run("sessions list --pool chat -o json") == run("sessions list --pool default/chat -o json")
    code, out, err = run("migrations list --trigger mood")
    assert (code, out) == (2, "")
    assert "is not one of" in err


def test_decisions_are_listed_by_why_they_are_kept_how_their_requests_ended_and_their_trace(run: Command) -> None:
    everything = json.loads(run("decisions list --limit 200 -o json")[1])
    for name in ("kept", "outcome"):
        for value in {one[name] for one in everything if one[name]}:
            found = json.loads(run(f"decisions list --{name} {value} --limit 200 -o json")[1])
            assert [one["id"] for one in found] == [one["id"] for one in everything if one[name] == value]
    traced = next(one for one in everything if one["trace"])
    assert json.loads(run(f"decisions list --trace {traced['trace']} -o json")[1]) == [traced]
    assert ["trace", traced["trace"]] in [line.split() for line in run(f"decisions show {traced['id']}")[1].splitlines()]
    assert run("decisions list --kept mood")[0] == run("decisions list --outcome mood")[0] == 2


def test_a_session_of_a_key_is_shown_with_its_keys_name_and_found_by_its_clients(
    run: Command, fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three, *rest = sorted(fake.world.sessions(), key=lambda each: each.pool != "default/chat")
    named = {"chat-1@1f2e3d4c5b6a7988": "team a", "chat-1@8897a6b5c4d3e2f1": "8897a6b5c4d3e2f1", "alone@1f2e3d4c5b6a7988": "team b"}
    changed = [replace(each, session=name, key=key) for each, (name, key) in zip((one, two, three), named.items(), strict=True)]
    monkeypatch.setattr(type(fake.world), "sessions", lambda _: [*changed, *rest])
    listed = " ".join(run("sessions list --search @")[1].split())
    for session, key in named.items():
        assert f" {session} {key} " in listed
    code, shown, _ = run("sessions show chat alone")
    assert code == 0 and " alone@1f2e3d4c5b6a7988 team b " in " ".join(shown.split())
    code, out, err = run("sessions show chat chat-1")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "chat-1@1f2e3d4c5b6a7988 (key team a), chat-1@8897a6b5c4d3e2f1 (key 8897a6b5c4d3e2f1); write one of them" in err


def test_all_decisions_of_a_session_are_kept_listed_and_let_go(run: Command) -> None:
    assert run("sessions kept chat", "viewer")[1].startswith("There is no session for which all decisions are kept.")
    code, out, _ = run("sessions keep chat conversation-1 --minutes 20")
    assert code == 0 and out.startswith("All decisions of session conversation-1 of default/chat are kept until 2")
    (row,) = run("sessions kept chat", "viewer")[1].splitlines()[1:]
    assert row.startswith("conversation-1 ") and row.endswith("operator-person")
    assert [one["session"] for one in json.loads(run("sessions kept chat -o json")[1])["sessions"]] == ["conversation-1"]
    assert (
        run("sessions let-go chat conversation-1")[1]
        == "From now on, only a sample of the decisions of session conversation-1 of default/chat is kept.\n"
    )
    assert json.loads(run("sessions kept chat -o json")[1])["sessions"] == []
    assert run("sessions keep chat one --minutes 61")[0] == 2
    assert run("sessions keep chat one", "viewer")[0] == 1, "an operator is needed"


@pytest.mark.parametrize(
    ("listed", "shown", "name"),
    [
        ("instances list chat", "instances show chat {id}", "id"),
        ("sessions list default/chat", "sessions show chat {session}", "session"),
        ("migrations list", "migrations show {id}", "id"),
        ("decisions list", "decisions show {id}", "id"),
        ("audit list", "audit show {id}", "id"),
        ("schedules list --pool default/chat", "schedules show chat {name}", "name"),
    ],
)
def test_one_of_a_list_can_be_shown(run: Command, listed: str, shown: str, name: str) -> None:
    first = json.loads(run(f"{listed} --limit 1 -o json")[1])[0]
    command = shown.format(**{key: shlex.quote(str(value)) for key, value in first.items()})
    code, out, err = run(command)
    assert (code, err) == (0, "")
    assert str(first[name]) in out
    assert json.loads(run(f"{command} -o json")[1])


def test_a_schedule_is_shown_with_its_windows_and_conflicts_in_words(run: Command) -> None:
    _, out, _ = run("schedules show chat any")
    found = json.loads(run("schedules show chat any -o json")[1])
    assert (len(found["windows"]), len(found["conflicts"])) == (1, 1)
    (conflict,) = found["conflicts"]
    assert ["schedule", "opens", "(UTC)", "closes", "(UTC)"] in [line.split() for line in out.splitlines()]
    assert f"{conflict['schedule']} and {conflict['other']} are open together from " in out
    assert f" UTC, over {conflict['subjects'][0]}: {conflict['decided_by']} decides.\n" in out
    assert "Conflict(" not in out


def test_names_with_colons_and_brackets_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["pool"], [["team-:car:-[bold]x[/y]"]])
    assert "team-:car:-[bold]x[/y]" in capsys.readouterr().out


def test_an_export_whose_reader_leaves_has_done_what_was_wanted(fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody_reads, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", nobody_reads)
        assert command_line.run(["migrations", "list", "--limit", "1", "-o", "csv", "--token", "viewer-token"]) == 0


def test_a_pool_is_shown_with_its_conditions_and_spec(run: Command) -> None:
    code, out, _ = run("pools show chat")
    assert code == 0
    assert "default/chat" in out
    assert "TTFT in time" in out
    assert '"model"' in out


def test_a_plan_is_listed_shown_applied_and_taken_back(run: Command, fake: FakePublicApi) -> None:
    assert run("pools pause chat --yes")[0] == 0
    [plan] = json.loads(run("plans list --kind rollout -o json")[1])
    assert plan["state"] == "applied"
    shown = run(f"plans show {plan['id']}")[1]
    assert "/spec/rollout/paused" in shown
    assert "Not simulated: 12 requests were recorded in the hour until 10:20 UTC" in shown
    code, out, _ = run(f"plans undo {plan['id']} --yes")
    assert (code, "Applied." in out) == (0, True)
    code, _, err = run("plans apply nobody --yes")
    assert (code, len(err.splitlines())) == (1, 1)


def test_the_audit_log_is_verified_against_a_kept_head(run: Command) -> None:
    assert "is intact" in run("audit verify")[1]
    code, _, err = run("audit verify --head 7")
    assert (code, err.count("\n")) == (2, 1)
    assert "write ID:CHAIN" in err


def test_watching_goes_on_while_the_api_is_away(run: Command, fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        fake.broken = {"/v1/pools"} if len(looks) == 1 else set()
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("fairlead_cli.listing.time.sleep", pause)
    code, out, err = run("pools list --watch --every 0.5 -o json")
    assert (code, looks) == (130, [0.5, 0.5, 0.5])
    assert [len(json.loads(line)) for line in out.splitlines()] == [POOLS] * 2
    assert err.strip().splitlines() == ["fairlead: Postgres does not answer; nothing was lost.; asking again"]


@pytest.mark.parametrize(
    ("command", "role", "failed", "told"),
    [
        ("migrations show nobody", "viewer", 1, "nobody"),
        ("pools list", "unknown", 1, "give a token with --token or FAIRLEAD_TOKEN"),
        ("sessions show /chat s", "viewer", 2, "write a pool's name, or namespace/name"),
        ("sessions list --pool a/b/c", "viewer", 2, "--pool: 'a/b/c' cannot be used; write a pool's name, or namespace/name"),
        ("verify --pool /chat", "viewer", 2, "--pool: '/chat' cannot be used; write a pool's name, or namespace/name"),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code_that_says_whose_fault_it_is(
    run: Command, command: str, role: str, failed: int, told: str
) -> None:
    code, out, err = run(command, role)
    assert (code, out, err.count("\n")) == (failed, "", 1)
    assert told in err


def test_watching_csv_is_a_wrong_command_line(run: Command) -> None:
    assert run("pools list --watch -o csv")[0] == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(run: Command, capfdbinary: pytest.CaptureFixture[bytes], shell: str) -> None:
    assert command_line.run(["completion", shell]) == 0
    assert "_FAIRLEAD_COMPLETE" in capfdbinary.readouterr().out.decode()


def test_completing_loads_only_the_command_that_is_typed(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    loaded: list[str] = []
    load = command_line._load

    def noted(name: str, command: Subcommand) -> click.Command:
        loaded.append(name)
        return load(name, command)

    monkeypatch.setattr(command_line, "_load", noted)

    def completed(*words: str) -> set[str]:
        monkeypatch.setenv("_FAIRLEAD_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["fairlead", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        command_line.run([])
        return {line.partition(",")[2] for line in capfdbinary.readouterr().out.decode().splitlines()}

    assert completed("m") == {"migrations"}
    assert loaded == []
    assert completed("migrations", "list", "--outcome", "f") == {"failed"}
    assert set(loaded) == {"migrations"}


def test_every_list_of_the_api_has_a_command() -> None:
    named = {"pools", "instances", "sessions", "migrations", "decisions", "rejections", "schedules", "plans", "slo", "audit", "what-if"}
    assert named <= SUBCOMMANDS.keys()
    for name in named - {"what-if", "slo"}:
        command = SUBCOMMANDS[name].load()
        assert isinstance(command, click.Group)
        assert "list" in command.commands
