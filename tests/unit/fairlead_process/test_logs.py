"""One format of log lines: the same keys, as text and as JSON."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead_process.logs import MOST_ALIKE, MOST_SUBJECTS, WINDOW_SECONDS, FloodGate, LogLines, LogSettings, configure


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


class Gate:
    """A filter of log lines, its clock, and the lines that it lets pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._gate = FloodGate(lambda: self.now)

    def lets(self, event: str = "cannot write", level: int = logging.WARNING, **values: Any) -> logging.LogRecord | None:
        made = logging.getLogger("fairlead_x").makeRecord("fairlead_x", level, "f", 1, event, (), None, extra=values)
        return made if self._gate.filter(made) else None


def test_of_alike_lines_few_are_written_and_the_next_says_how_many_were_left_out() -> None:
    gate = Gate()
    written = [line for number in range(500) if (line := gate.lets(error=f"disk full {number}")) is not None]
    assert len(written) == MOST_ALIKE and not any(hasattr(line, "left_out") for line in written)
    gate.now = WINDOW_SECONDS
    told = gate.lets(error="disk full")
    assert told is not None and "left_out=490" in LogLines(as_json=False).format(told)
    again = gate.lets(error="disk full")
    assert again is not None and not hasattr(again, "left_out")


def test_other_events_subjects_and_what_is_no_warning_are_not_held_back() -> None:
    gate = Gate()
    for _ in range(100):
        gate.lets(instance="a")
    assert gate.lets(instance="a") is None
    assert gate.lets(instance="b") is not None
    assert gate.lets("engine lost", instance="a") is not None
    assert all(gate.lets(level=logging.INFO) is not None for _ in range(100))


def test_a_flood_of_ever_new_events_or_subjects_is_held_back_too_and_takes_little_memory() -> None:
    gate = Gate()
    assert sum(gate.lets(f"event {number}") is not None for number in range(20_000)) <= MOST_SUBJECTS + MOST_ALIKE
    assert len(gate._gate._windows) <= MOST_SUBJECTS + 1
    gate.now = WINDOW_SECONDS
    assert gate.lets("event 20000") is not None


def test_the_gate_stands_before_every_process_log() -> None:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:]
    try:
        configure(LogSettings(), stream)
        for number in range(300):
            logging.getLogger("fairlead_x").warning("cannot write", extra={"error": number})
    finally:
        logging.getLogger().handlers[:] = before
    assert stream.getvalue().count("cannot write") == MOST_ALIKE
