"""Reading logs back: last lines, pods by name, and following through cuts."""

import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from fairlead_sandbox import log_reading
from fairlead_sandbox.commands import logs
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.log_reading import find_logs, follow, last_lines
from fairlead_sandbox.state_directory import StateDirectory


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(root=tmp_path)
    made.create()
    (made.logs / "api.log").write_text("one\ntwo\nthree\n")
    (made.kubernetes / "logs").mkdir()
    (made.kubernetes / "logs" / "default_demo-b1.log").write_text("engine\n")
    return made


def test_the_last_lines_of_a_process_and_of_a_pod_are_found_by_name(directory: StateDirectory) -> None:
    assert last_lines(find_logs(directory, "api")["api"], 2) == ["two", "three"]
    assert last_lines(find_logs(directory, "demo-b1")["demo-b1"], 5) == ["engine"]
    assert last_lines(find_logs(directory, "api")["api"], 0) == []
    assert list(find_logs(directory, None)) == ["api"]


def test_an_unknown_name_is_answered_with_the_known_ones(directory: StateDirectory) -> None:
    with pytest.raises(SandboxError, match="no log of 'apo'; there are: api, demo-b1"):
        find_logs(directory, "apo")


def test_following_goes_on_after_the_file_was_cut(directory: StateDirectory) -> None:
    path = directory.logs / "api.log"
    lines = follow({"api": path}, poll_seconds=0.01)
    append(path, "four\nfi")
    assert next(lines) == ("api", "four")
    append(path, "ve\n")
    assert next(lines) == ("api", "five")
    path.write_text("new\n")
    assert next(lines) == ("api", "new")


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_following_ends_when_the_reader_has_gone(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    def two_lines(_: dict[str, Path]) -> Iterator[tuple[str, str]]:
        yield "api", "four"
        pytest.fail("it followed for nobody")

    monkeypatch.setattr(log_reading, "follow", two_lines)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert logs.callback is not None
    with pytest.raises(BrokenPipeError, match="Broken pipe"):
        logs.callback(state_dir=directory.root, follow=True, count=0, process="api")
