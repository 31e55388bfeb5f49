"""The web UI in a process of its own names each variable that its environment lacks."""

import pytest
from click.testing import CliRunner

from fairlead_web.main import main


@pytest.mark.parametrize("url", ["", "fairlead-api:8080", "ftp://x"])
def test_an_api_address_that_cannot_be_used_ends_it_with_one_line_and_code_two(url: str) -> None:
    ended = CliRunner().invoke(main, ["--port", "0"], env={"FAIRLEAD_API_URL": url})
    assert ended.exit_code == 2
    assert ended.stderr.startswith("fairlead web: FAIRLEAD_API_URL: ")
    assert ended.stderr.count("\n") == 1
