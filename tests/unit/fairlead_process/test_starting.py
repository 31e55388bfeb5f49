"""A start that is impossible ends with one line, and an exit code that shows who has to act."""

import socket

import pytest

from fairlead.errors import InvalidInput, UnknownName
from fairlead_process.environment import names
from fairlead_process.logs import OnlyLogs
from fairlead_process.starting import bind, one_line_errors, report_unread


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (InvalidInput("FAIRLEAD_X", "y", "write z"), 2, "fairlead router: FAIRLEAD_X: 'y' cannot be used; write z\n"),
        (UnknownName("policy", "x", ("a",)), 1, "fairlead router: policy 'x' is unknown; known: a\n"),
        (PermissionError(13, "Permission denied", "/spool"), 1, "fairlead router: /spool: Permission denied\n"),
    ],
)
def test_what_was_raised_on_purpose_is_one_line(problem: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors("router"):
        raise problem
    assert ended.value.code == code
    assert capsys.readouterr().err == line


def test_a_fault_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors("router"):
        raise ZeroDivisionError("a bug")
    assert ended.value.code == 1
    assert caplog.records[0].exc_info is not None


def test_a_misspelt_variable_is_a_log_line_that_names_the_right_one(caplog: pytest.LogCaptureFixture) -> None:
    report_unread({"FAIRLEAD_LOG_LEVLE": "DEBUG", "FAIRLEAD_LOG_FORMAT": "json"}, names(OnlyLogs))
    (line,) = caplog.records
    assert (line.__dict__["variable"], line.__dict__["did_you_mean"]) == ("FAIRLEAD_LOG_LEVLE", "FAIRLEAD_LOG_LEVEL")


def test_a_port_that_is_taken_or_none_is_named_with_its_options() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"^--host/--port: '127.0.0.1:{port}' cannot be used; .*in use"):
            bind("--host/--port", "127.0.0.1", port)
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1:70000"):
        bind("--host/--port", "127.0.0.1", 70000)


def test_a_shared_port_can_be_bound_twice() -> None:
    with bind("--port", "127.0.0.1", 0, shared=True) as first:
        port = first.getsockname()[1]
        with bind("--port", "127.0.0.1", port, shared=True) as second:
            assert second.getsockname()[1] == port
