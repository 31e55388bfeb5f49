"""Output is cut into lines, log files are bounded, and streams are merged."""

import errno
import os
import shutil
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_sandbox.log_streams import LINE_LIMIT_BYTES, Console, LineSplitter, ProcessLog
from fairlead_testing.examples import examples


@examples(60)
@given(st.lists(st.text(alphabet="abé \t", max_size=10), max_size=8), st.integers(min_value=1, max_value=7))
def test_lines_are_the_same_however_the_bytes_arrive(lines: list[str], size: int) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    splitter = LineSplitter()
    fed = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
    assert fed == lines
    assert splitter.rest() == []


def test_a_progress_bar_becomes_lines_and_the_last_part_is_not_lost() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"10%\r20%\r\ndone") == ["10%", "20%"]
    assert splitter.rest() == ["done"]


def test_a_line_without_end_is_cut() -> None:
    assert [len(line) for line in LineSplitter().feed(b"x" * (LINE_LIMIT_BYTES + 1))] == [LINE_LIMIT_BYTES + 1]


def test_a_full_log_is_moved_aside_and_the_last_lines_stay_at_hand(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "api", None, limit_bytes=40)
    for number in range(10):
        log.write(f"line {number} ....")
    log.close()
    assert (tmp_path / "api.log").stat().st_size <= 40
    assert (tmp_path / "api.log.1").stat().st_size <= 40
    assert (tmp_path / "api.log").read_text().endswith("line 9 ....\n")
    assert next(iter(log.last_lines)) == "line 0 ...."


def test_the_merged_stream_names_each_process_and_colours_names_only_when_wanted() -> None:
    plain, coloured = StringIO(), StringIO()
    for target, colour in ((plain, False), (coloured, True)):
        console = Console(target, names=("api", "router-0"), coloured=colour)
        console.write("api", "up")
        console.write("router-0", "up too")
    assert plain.getvalue() == "api      | up\nrouter-0 | up too\n"
    assert coloured.getvalue().splitlines()[0] == "\x1b[36mapi      |\x1b[0m up"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_reader_that_went_away_ends_the_stream_quietly(number: int) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, os.strerror(number))

    console = Console(Gone(), names=("api",), coloured=False)
    console.write("api", "up")
    assert console.reader_left


def test_a_log_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path, "api", None, limit_bytes=10)
    log.write("one .....")
    (tmp_path / "api.log").unlink()
    log.write("two .....")
    log.write("three ...")
    log.close()
    assert (tmp_path / "api.log").read_text() == "three ...\n"
    assert (tmp_path / "api.log.1").read_text() == "two .....\n"


def test_a_log_goes_on_when_its_folder_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = ProcessLog(folder, "api", None, limit_bytes=10)
    shutil.rmtree(folder)
    for line in ("one .....", "two .....", "three ..."):
        log.write(line)
    folder.mkdir()
    log.write("four ....")
    log.write("five ....")
    log.close()
    assert (folder / "api.log").read_text() == "five ....\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the kernel has no full disk to offer")
def test_a_full_disk_ends_neither_writing_nor_closing(tmp_path: Path) -> None:
    (tmp_path / "api.log").symlink_to("/dev/full")
    log = ProcessLog(tmp_path, "api", None)
    log.write("one")
    log.close()
    assert list(log.last_lines) == ["one"]
