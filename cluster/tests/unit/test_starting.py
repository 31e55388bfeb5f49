"""How a process starts: one line for an error that a person can act on, and one form of log lines."""

import json
import logging

import pytest

from processkube.errors import ClusterProblem, InvalidInput
from processkube.logs import LogLines
from processkube.starting import DEBUG, one_line_errors


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (InvalidInput("--port", 1, "choose another"), 2, "processkube api: --port: 1 cannot be used; choose another"),
        (ClusterProblem("GET /x: 404"), 1, "processkube api: GET /x: 404"),
        (FileNotFoundError(2, "No such file or directory", "/nowhere"), 1, "processkube api: /nowhere: No such file or directory"),
    ],
)
def test_an_error_on_purpose_is_one_line(problem: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors("api"):
        raise problem
    assert ended.value.code == code
    assert capsys.readouterr().err == f"{line}\n"


def test_a_fault_is_logged_with_its_traceback_and_raised_where_that_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors("api"):
        raise KeyError("missing")
    assert ended.value.code == 1
    assert "ended by a fault\nTraceback" in capsys.readouterr().err
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(KeyError), one_line_errors("api"):
        raise KeyError("missing")


def test_a_line_has_its_values_as_text_and_as_json() -> None:
    record = logging.makeLogRecord(
        {"name": "processkube.x", "levelno": 30, "levelname": "WARNING", "msg": "it broke", "error": 'disk "a" full'}
    )
    assert LogLines(as_json=False).format(record).endswith('WARNING processkube.x it broke error="disk \\"a\\" full"')
    document = json.loads(LogLines(as_json=True).format(record))
    assert (document["level"], document["logger"], document["event"]) == ("warning", "processkube.x", "it broke")
    assert document["error"] == 'disk "a" full'
