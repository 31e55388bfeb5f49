"""The command line as scripts use it: JSON from every command, one table of exit codes, tokens, names of pools."""

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest

from fairlead_cli import asking
from fairlead_cli import main as command_line
from fairlead_cli.asking import RunningSandbox
from fairlead_cli.kubectl.door import ServicePlace
from fairlead_cli.kubectl.main import completions, own_first
from fairlead_client.client import ControlApi
from fairlead_process.commands import MEANINGS, ExitCode, run
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.command_line import Command
from fairlead_testing.running.programs import commands

ROOT = Path(__file__).parents[3]
WITHOUT_JSON = {
    "fairlead up": "runs until it is ended",
    "fairlead serve": "runs until it is ended",
    "fairlead api": "runs until it is ended",
    "fairlead router": "runs until it is ended",
    "fairlead operator": "runs until it is ended",
    "fairlead engine": "runs until it is ended",
    "fairlead logs": "prints lines that processes wrote",
    "fairlead audit export": "writes a file, which is lines of JSON",
    "fairlead completion": "prints a shell's script",
    "fairlead traces generate": "writes a trace, which is JSON",
    "fairlead traces host-cache": "prints a table of sizes",
    "fairlead traces convert": "writes a trace, which is JSON",
}


def test_every_command_has_json_for_programs() -> None:
    for path, command in commands():
        outputs = [
            one for one in command.params if "--output" in one.opts and isinstance(one.type, click.Choice) and "json" in one.type.choices
        ]
        assert bool(outputs) is not (path in WITHOUT_JSON or path.startswith("python -m")), path


def document(out: str) -> Any:
    """Return the JSON document on standard output, which must have nothing else."""
    return json.loads(out)


CHANGES = (
    ("change", "scale", "chat", "9"),
    ("change", "set", "chat", "slo", "ttft=3s"),
    ("slo", "set", "chat", "--ttft", "3s"),
    ("pools", "pause", "chat"),
)


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_change_says_as_json_what_was_planned_and_what_was_done(command: Command, fake: FakePublicApi, words: tuple[str, ...]) -> None:
    code, out, err = command(*words, "--no-apply", "-o", "json", role="admin")
    planned = document(out)
    assert (code, planned["done"], planned["state"], fake.book.applied) == (0, "planned", "open", [])
    assert planned["diff"] and "expectation" in planned and f"plans apply {planned['id']}" in err
    code, out, _ = command("plans", "apply", planned["id"], "--yes", "--reason", "x", "-o", "json", role="admin")
    applied = document(out)
    assert (code, applied["done"], applied["state"], applied["id"]) == (0, "applied", "applied", planned["id"])
    code, out, _ = command("change", "undo", applied["id"], "--yes", "--reason", "x", "-o", "json", role="admin")
    assert (code, document(out)["done"], document(out)["undo_of"]) == (0, "applied", applied["id"])


def test_a_change_that_is_declined_or_anothers_to_make_is_code_1_with_its_plan(
    command: Command, fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = command("change", "scale", "chat", "9", "-o", "json", role="admin")
    assert (code, document(out)["done"], document(out)["state"]) == (1, "declined", "open")
    assert err.endswith("Nothing was changed.\n")
    fake.world.owner[CHAT] = "Argo CD (shop)"
    code, out, err = command("change", "scale", "chat", "9", "--yes", "-o", "json", role="admin")
    assert (code, document(out)["done"]) == (1, "owned-elsewhere")
    assert "replicas: 9" in document(out)["patch"] and "Argo CD (shop) owns this pool" in err
    assert fake.book.applied == []


def test_changes_of_several_pools_are_one_list(command: Command, fake: FakePublicApi) -> None:
    code, out, _ = command("change", "migrations", "paused", "--all", "--yes", "--reason", "x", "-o", "json", role="admin")
    assert (code, {one["pool"]: one["done"] for one in document(out)}) == (0, {str(CHAT): "applied", str(CODE): "applied"})


def test_a_token_is_made_listed_and_revoked(command: Command) -> None:
    code, out, err = command("tokens", "create", "ci", "--role", "viewer", "--in", "shop=operator", "--days", "7", role="admin")
    assert (code, out.count("\n"), "it is not shown again" in err) == (0, 1, True)
    made = document(command("tokens", "create", "cd", "--role", "operator", "-o", "json", role="admin")[1])
    assert made["secret"] and made["role"] == "operator"
    listed = document(command("tokens", "list", "-o", "json", role="admin")[1])
    assert listed and not any(one["secret"] for one in listed)
    assert listed[0]["id"] in command("tokens", "list", role="admin")[1]
    code, out, _ = command("tokens", "revoke", listed[0]["id"], "--yes", "-o", "json", role="admin")
    assert (code, document(out)) == (0, {"id": listed[0]["id"], "done": "revoked"})
    assert command("tokens", "list", role="viewer")[0] == 1


@pytest.mark.parametrize("words", [("code", "-n", "research"), ("research/code",), ("research/code", "-n", "research")], ids=" ".join)
def test_a_pool_is_named_in_one_way_everywhere(command: Command, words: tuple[str, ...]) -> None:
    for listing in ("decisions list", "sessions list", "migrations list", "plans list", "audit list", "schedules list", "advice"):
        assert command(*listing.split(), *words, role="viewer")[0] == 0, listing
    shown = document(command("pools", "show", *words, "-o", "json", role="viewer")[1])
    assert (shown["pool"]["namespace"], shown["pool"]["name"]) == ("research", "code")
    before = command("decisions", "list", "--pool", "research/code", "-o", "json", role="viewer")
    assert before == command("decisions", "list", *words, "-o", "json", role="viewer"), "the older spelling says the same"


def test_the_exit_codes_are_one_table_that_the_page_has() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert set(MEANINGS) == set(ExitCode)
    for code, meaning in MEANINGS.items():
        assert f"| {code.value} | {meaning.replace('|', chr(92) + '|')} |" in page


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (None, 0), (click.exceptions.Exit(1), 1), (click.UsageError("x"), 2), (KeyboardInterrupt(), 130), (BrokenPipeError(), 0),
        (OSError(28, "No space left on device"), 1), (ExceptionGroup("unhandled errors", [OSError(111, "refused")]), 1), (SystemExit(3), 3),
    ],
    ids=str,
)  # fmt: skip
def test_what_ends_a_command_has_its_code_and_at_most_a_line(
    raised: BaseException | None, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    assert run(click.Command("x", callback=work), [], "x") == code
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_replay_without_an_address_goes_to_this_folders_sandbox(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = RunningSandbox(apis=("http://127.0.0.1:1",), gateways=("http://127.0.0.1:9",), admin="a")
    monkeypatch.setattr(asking, "_sandbox", lambda _: running)
    assert command_line.run(["replay", "--generate", "conversation", "--requests", "1", "--model", "m"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    monkeypatch.setattr(asking, "_sandbox", lambda _: None)
    assert command_line.run(["replay", "--generate", "conversation"]) == 2
    assert "--url: write the address of a router" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        ("status chat --context a", "--context a status chat"),
        ("status --kubeconfig=/x chat -n shop", "--kubeconfig=/x status chat -n shop"),
        ("pools show -- --context", "pools show -- --context"),
        ("status --context", "--context status"),
    ],
)
def test_kubectls_options_come_first_wherever_they_were_written(words: str, ordered: str) -> None:
    assert " ".join(own_first(words.split())) == ordered


def test_words_and_options_are_completed_for_kubectl() -> None:
    assert {one.value for one in completions([], "p")} == {"plan", "pools", "plans"}
    assert "--no-apply" in {one.value for one in completions(["drain", "chat"], "--no")}


def test_behind_a_proxy_the_token_has_a_header_of_its_own() -> None:
    assert ControlApi("http://h", "t", own_header=True)._headers() == {"x-fairlead-token": "t"}
    assert ControlApi("http://h", "t")._headers() == {"authorization": "Bearer t"}
    assert ServicePlace.parse("a/b:http").path == "/api/v1/namespaces/a/services/b:http/proxy"
