"""Which API a command calls if neither address nor token is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fairlead_cli import main as command_line
from fairlead_cli.asking import place
from fairlead_cli.kubectl.door import Door
from fairlead_cli.kubectl.main import PROGRAM, Plugin
from fairlead_client.client import ControlApi
from fairlead_process import commands

URL = "http://127.0.0.1:8080"


def test_a_state_directory_without_a_sandbox_is_not_replaced_by_another_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_STATE_DIR", str(tmp_path))
    assert command_line.run(["pools", "list"]) == 2
    error = capsys.readouterr().err
    assert f"FAIRLEAD_STATE_DIR: '{tmp_path}' cannot be used; no sandbox of yours runs there" in error
    assert place((URL,), None) == ((URL,), None), "an address that is given needs no sandbox"


@pytest.mark.parametrize("named", [None, ""])
def test_without_a_sandbox_the_usual_address_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_STATE_DIR", raising=False)
    if named is not None:
        monkeypatch.setenv("FAIRLEAD_STATE_DIR", named)
    assert place((), None) == ((URL,), None)


@pytest.mark.parametrize(
    ("status", "remedy"), [(404, "name the Service of the control API with --service"), (401, "give a token with --token")]
)
def test_a_remedy_names_only_what_the_kubectl_plugin_has(
    status: int, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plugin has no `--url`, and there is no sandbox on its machine."""

    @contextmanager
    def opened(self: Door, token: str | None) -> Iterator[ControlApi]:
        problem = {"type": "about:blank", "title": "Unauthorized", "status": 401, "code": "unauthenticated", "detail": "no token"}
        missing = {"kind": "Status", "apiVersion": "v1", "message": 'services "fairlead-api" not found', "code": 404}
        answer = httpx.MockTransport(lambda request: httpx.Response(status, json=problem if status == 401 else missing))
        yield ControlApi("http://localhost/proxy", token, answer, own_header=True)

    monkeypatch.setattr(Door, "opened", opened)
    assert commands.run(Plugin(), ["pools", "list"], PROGRAM) == 1
    error = capsys.readouterr().err
    assert remedy in error
    assert "--url" not in error
    assert "FAIRLEAD_STATE_DIR" not in error


@pytest.mark.parametrize(
    ("error", "is_late"),
    [
        (httpx.ReadTimeout(""), True),
        (httpx.PoolTimeout(""), True),
        (httpx.ConnectTimeout(""), False),
        (httpx.ConnectError("refused"), False),
    ],
)
def test_only_an_api_that_is_not_there_is_looked_for_elsewhere(
    error: httpx.TransportError, is_late: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    monkeypatch.setattr("fairlead_cli.asking.connect", lambda url, token: ControlApi(URL, token, httpx.MockTransport(fail)))
    assert command_line.run(["pools", "list", "--url", URL, "--token", "t"]) == 1
    told = capsys.readouterr().err
    assert ("again later" in told, "--url" in told) == (is_late, not is_late)
