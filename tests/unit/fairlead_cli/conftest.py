"""Commands against the fake public API."""

import pytest

from fairlead_cli import main as command_line
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.running.command_line import Command, reaching_a_fake


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePublicApi:
    return reaching_a_fake(monkeypatch)


@pytest.fixture
def command(fake: FakePublicApi, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, role: str) -> tuple[int, str, str]:
        code = command_line.run([*arguments, "--token", f"{role}-token"])
        heard = capsys.readouterr()
        return code, heard.out, heard.err

    return run
