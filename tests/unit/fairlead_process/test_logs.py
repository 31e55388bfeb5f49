"""One format of log lines: the same keys, as text and as JSON."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead_process.logs import LogLines, LogSettings, configure


def record(event: str = "report set aside", **values: Any) -> logging.LogRecord:
    made = logging.getLogger("fairlead_x").makeRecord("fairlead_x", logging.WARNING, "f", 1, event, (), None, extra=values)
    made.created = 1_763_719_200.5
    return made


def test_a_line_is_time_level_logger_event_and_named_values() -> None:
    line = LogLines(as_json=False).format(record(file="7.json", error="disk full", empty="", count=3))
    assert line == '2025-11-21T10:00:00.500Z WARNING fairlead_x report set aside file=7.json error="disk full" empty="" count=3'


@pytest.mark.parametrize("value", ['a"b', "a=b", "a\nb", "\x1b[31m"])
def test_a_value_cannot_pretend_to_be_more_than_one(value: str) -> None:
    line = LogLines(as_json=False).format(record(error=value))
    assert line.endswith(f"error={json.dumps(value)}")


def test_json_has_the_same_keys_in_one_object() -> None:
    told = json.loads(LogLines(as_json=True).format(record(pool="default/chat", nothing=None)))
    assert told == {
        "at": "2025-11-21T10:00:00.500Z",
        "level": "warning",
        "logger": "fairlead_x",
        "event": "report set aside",
        "pool": "default/chat",
    }


def test_a_traceback_follows_as_text_and_is_a_value_in_json() -> None:
    failed = record()
    try:
        raise ZeroDivisionError("no")
    except ZeroDivisionError:
        failed.exc_info = sys.exc_info()
    assert "\nTraceback" in LogLines(as_json=False).format(failed)
    assert "ZeroDivisionError: no" in json.loads(LogLines(as_json=True).format(failed))["trace"]


def test_the_object_of_a_line_of_kopf_is_named_and_what_it_attaches_for_itself_is_not() -> None:
    line = LogLines(as_json=False).format(record(k8s_ref={"namespace": "default", "name": "chat", "uid": "u"}, k8s_skip=False, settings=1))
    assert line.endswith(" object=default/chat")


def test_settings_decide_form_and_least_level_and_libraries_are_quiet() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        configure(LogSettings(format="json", level="WARNING"), stream)
        logging.getLogger("fairlead_x").info("not this")
        logging.getLogger("fairlead_x").warning("this", extra={"pool": "p"})
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "this"
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)


def test_a_program_started_with_m_is_named_after_its_module(tmp_path: Path) -> None:
    (tmp_path / "shipping.py").write_text(
        "import logging\nfrom fairlead_process.logs import LogSettings, configure\n"
        "configure(LogSettings())\nlogging.getLogger(__name__).info('listening')\n"
    )
    told = subprocess.run([sys.executable, "-m", "shipping"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert told.stderr.endswith(" INFO shipping listening\n")
