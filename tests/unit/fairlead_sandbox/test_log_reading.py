"""Logs are read back: last lines, pods by name, and following a log that is cut."""

import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from fairlead_sandbox import log_reading
from fairlead_sandbox.commands import logs
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.log_reading import find_logs, follow, last_lines
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_testing.waiting import PATIENCE_SECONDS


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(root=tmp_path)
    made.create()
    (made.logs / "api.log").write_text("one\ntwo\nthree\n")
    (made.kubernetes / "logs").mkdir()
    (made.kubernetes / "logs" / "default_demo-b1.log").write_text("engine\n")
    return made


def test_the_last_lines_of_a_process_and_of_a_pod_are_found_by_name(directory: StateDirectory) -> None:
    assert last_lines(find_logs(directory, "api")["api"], 2) == (["two", "three"], 14)
    assert last_lines(find_logs(directory, "demo-b1")["demo-b1"], 5) == (["engine"], 7)
    assert last_lines(find_logs(directory, "api")["api"], 0) == ([], 14)
    assert list(find_logs(directory, None)) == ["api"]


@pytest.mark.parametrize("end", ["\n", "\nlast, unfinished"])
def test_as_many_lines_as_asked_for_are_read_however_long_they_are(tmp_path: Path, end: str) -> None:
    path = tmp_path / "api.log"
    lines = [f"{number} {'x' * (number % 7) * 40_000}" for number in range(40)]
    path.write_text("\n".join(lines) + end)
    lines += [end[1:]] if end[1:] else []
    for count in (1, 2, 20, len(lines), len(lines) + 1):
        assert last_lines(path, count)[0] == lines[-count:]
    path.write_text("")
    assert last_lines(path, 3) == ([], 0)


def test_a_line_between_the_last_lines_and_following_is_not_lost(directory: StateDirectory) -> None:
    path = directory.logs / "api.log"
    lines, end = last_lines(path, 1)
    append(path, "four\n")
    assert (lines, next(follow({"api": path}, {"api": end}))) == (["three"], ("api", "four"))


def test_an_unknown_name_is_answered_with_the_known_ones(directory: StateDirectory) -> None:
    with pytest.raises(SandboxError, match="no log of 'apo'; there are logs of: api, demo-b1"):
        find_logs(directory, "apo")


def test_following_goes_on_after_the_file_was_cut(directory: StateDirectory) -> None:
    path = directory.logs / "api.log"
    lines = follow({"api": path}, {"api": path.stat().st_size}, poll_seconds=0.01)
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

    def two_lines(*_: object, **__: object) -> Iterator[tuple[str, str]]:
        yield "api", "four"
        pytest.fail("it followed for nobody")

    monkeypatch.setattr(log_reading, "follow", two_lines)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert logs.callback is not None
    with pytest.raises(BrokenPipeError, match="Broken pipe"):
        logs.callback(state_dir=directory.root, follow=True, count=0, process="api")


def test_following_ends_with_its_reader_though_no_line_comes(directory: StateDirectory) -> None:
    command = [sys.executable, "-m", "fairlead_cli.main", "logs", "-f", "--state-dir", str(directory.root), "api"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
        time.sleep(0.5)
        assert following.poll() is None, "it follows as long as somebody reads"
        following.stdout.close()
        try:
            assert following.wait(PATIENCE_SECONDS) == 1
        finally:
            following.kill()
        assert following.stderr is not None
        assert following.stderr.read() == b""
