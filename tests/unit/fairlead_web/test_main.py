"""The web UI in a process of its own says plainly what its environment lacks."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_web.main import build, main


@pytest.mark.parametrize("url", ["", "fairlead-api:8080", "ftp://x"])
def test_an_api_address_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(InvalidInput, match="FAIRLEAD_API_URL"):
        build({"FAIRLEAD_API_URL": url}, "127.0.0.1", 8090)


def test_bad_settings_end_with_one_line_and_code_two(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FAIRLEAD_API_URL", raising=False)
    assert main(["--port", "1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fairlead web: FAIRLEAD_API_URL: ''")
    assert said.count("\n") == 1
