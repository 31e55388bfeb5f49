"""The disk spool."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.batches import Cargo
from fairlead_router.reporting import spool as spool_module
from fairlead_router.reporting.spool import MOST_ASIDE, Spool


def _spool(directory: Path, max_bytes: int = 1_000_000) -> Spool:
    spool = Spool(directory, max_bytes, time.time)
    spool.open()
    return spool


def test_batches_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    for index in range(12):
        spool.append(Cargo.HISTORY if index % 2 else Cargo.SAMPLES, index, b"{%d}" % index)
    again = _spool(tmp_path)
    for cargo, first in ((Cargo.SAMPLES, 0), (Cargo.HISTORY, 1)):
        assert [batch.path.read_bytes() for batch in again.batches(cargo)] == [b"{%d}" % index for index in range(first, 12, 2)]
    assert again.size == spool.size
    assert again.append(Cargo.HISTORY, 1, b"{}").sequence == 13


def test_a_half_written_batch_is_removed_and_never_sent(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    spool.append(Cargo.HISTORY, 1, b"{}")
    (tmp_path / "0000000000000002.history.3.tmp").write_bytes(b'{"id":')
    again = _spool(tmp_path)
    assert len(again) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000000000001.history.1.json"]


def test_discarding_twice_or_after_shrinking_does_no_harm(tmp_path: Path) -> None:
    spool = _spool(tmp_path, max_bytes=10)
    first = spool.append(Cargo.SAMPLES, 2, b"12345678")
    spool.append(Cargo.HISTORY, 1, b"12345678")
    spool.discard([first])
    spool.drop(first)
    assert spool.dropped == {"samples": 2}
    assert spool.size == 8


@given(st.lists(st.tuples(st.sampled_from(list(Cargo)), st.integers(1, 60), st.booleans()), max_size=40))
def test_the_bound_holds_and_history_goes_only_when_no_samples_are_left(steps: list[tuple[Cargo, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spool = _spool(directory, max_bytes=100)
        kept = 0
        for cargo, size, acknowledge in steps:
            history_lost = spool.dropped["history"]
            spool.append(cargo, 1, b"x" * size)
            kept += 1
            assert spool.size <= 100
            assert spool.size == sum(path.stat().st_size for path in directory.iterdir())
            if spool.dropped["history"] > history_lost:
                assert spool.batches(Cargo.SAMPLES) == ()
            oldest = spool.lend(cargo, 1, 1, 1)
            if acknowledge and oldest:
                spool.discard(oldest)
                kept -= 1
            else:
                spool.give_back(oldest)
        assert len(spool) + sum(spool.dropped.values()) == kept


def test_neighbours_are_lent_within_bounds_and_to_one_borrower_at_a_time(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    written = [spool.append(Cargo.SAMPLES if index == 2 else Cargo.HISTORY, 10, b"x" * 100) for index in range(6)]
    history = [batch for batch in written if batch.cargo is Cargo.HISTORY]
    assert spool.lend(Cargo.HISTORY, 2, 1000, 10_000) == history[:2]
    assert spool.lend(Cargo.HISTORY, 9, 15, 10_000) == history[2:3]
    assert spool.lend(Cargo.HISTORY, 9, 1, 1) == history[3:4], "one at least, however small the bounds"
    spool.give_back(history[2:4])
    assert spool.lend(Cargo.HISTORY, 9, 1000, 150) == history[2:3]
    spool.discard(history[:4])
    assert spool.lend(Cargo.HISTORY, 9, 1000, 10_000) == history[4:]
    assert spool.lend(Cargo.SAMPLES, 9, 1000, 10_000) == [written[2]]


def test_what_is_under_way_is_not_given_up_for_space(tmp_path: Path) -> None:
    spool = _spool(tmp_path, max_bytes=10)
    first = spool.append(Cargo.HISTORY, 1, b"12345678")
    assert spool.lend(Cargo.HISTORY, 1, 1, 1) == [first]
    spool.append(Cargo.HISTORY, 5, b"12345678")
    assert spool.batches(Cargo.HISTORY) == (first,)
    assert spool.dropped == {"history": 5}


def test_history_does_not_go_while_samples_are_under_way_but_the_samples_when_they_come_back(tmp_path: Path) -> None:
    spool = _spool(tmp_path, max_bytes=20)
    spool.append(Cargo.SAMPLES, 3, b"1234567890")
    lent = spool.lend(Cargo.SAMPLES, 1, 10, 100)
    spool.append(Cargo.HISTORY, 1, b"1234567890")
    spool.append(Cargo.HISTORY, 1, b"1234567890")
    assert (spool.size, dict(spool.dropped)) == (30, {})
    spool.give_back(lent)
    assert (spool.size, dict(spool.dropped)) == (20, {"samples": 3})


def test_batches_set_aside_are_kept_out_of_the_way_over_restarts_and_bounded(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    for index in range(MOST_ASIDE + 2):
        spool.set_aside(spool.append(Cargo.HISTORY, 3, b"{%d}" % index))
    again = _spool(tmp_path)
    assert (len(again), again.size, again.aside, spool.aside) == (0, 0, MOST_ASIDE, MOST_ASIDE)
    assert spool.dropped == {"history": 6}
    assert again.append(Cargo.HISTORY, 1, b"{}").sequence == MOST_ASIDE + 3


def test_the_age_of_the_oldest_batch_is_known_over_restarts(tmp_path: Path) -> None:
    clock = iter([100.0, 50.0])
    spool = Spool(tmp_path, 1000, lambda: next(clock))
    spool.open()
    assert spool.oldest_written_at() is None
    first = spool.append(Cargo.SAMPLES, 1, b"{}")
    spool.append(Cargo.HISTORY, 1, b"{}")
    assert spool.oldest_written_at() == 50.0
    os.utime(first.path, (20.0, 20.0))
    assert _spool(tmp_path).oldest_written_at() == pytest.approx(20.0, abs=1.0)


def test_batches_keep_their_order_while_the_disk_accepts_none_and_afterwards(tmp_path: Path) -> None:
    directory = tmp_path / "reports"
    spool = _spool(directory)
    spool.append(Cargo.HISTORY, 1, b"1")
    away = directory.rename(tmp_path / "away")
    for content in (b"2", b"3"):
        spool.append(Cargo.HISTORY, 1, content)
    away.rename(directory)
    spool.append(Cargo.HISTORY, 1, b"4")
    assert (spool.unwritten, len(spool), spool.size) == (3, 4, 4), "none is written before those that came before it"
    spool.write_again()
    assert (spool.unwritten, spool.size) == (0, 4)
    assert [batch.read() for batch in _spool(directory).batches(Cargo.HISTORY)] == [b"1", b"2", b"3", b"4"]


def test_a_full_disk_is_not_filled_with_halves_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    spool = _spool(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    spool.append(Cargo.HISTORY, 1, b"{}")
    assert list(tmp_path.iterdir()) == []
    assert spool.unwritten == 1


def test_what_waits_in_memory_is_bounded_and_samples_go_before_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MOST_UNWRITTEN_BYTES", 30)
    directory = tmp_path / "reports"
    spool = _spool(directory)
    on_disk = spool.append(Cargo.SAMPLES, 1, b"x" * 100)
    directory.rename(tmp_path / "away")
    for cargo in (Cargo.HISTORY, Cargo.SAMPLES, Cargo.HISTORY, Cargo.HISTORY):
        spool.append(cargo, 1, b"x" * 10)
    assert spool.dropped == {"samples": 1}
    (lent,) = spool.lend(Cargo.HISTORY, 1, 1, 1)
    spool.append(Cargo.HISTORY, 1, b"x" * 10)
    assert spool.dropped == {"samples": 1, "history": 1}
    assert spool.batches(Cargo.SAMPLES) == (on_disk,)
    assert lent in spool.batches(Cargo.HISTORY), "it may have arrived"


def test_the_name_of_a_file_with_history_survives_a_crash_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, list[str]]] = []

    def sync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((place.name, [path.suffix for path in tmp_path.iterdir()]))

    spool = _spool(tmp_path)
    monkeypatch.setattr(os, "fsync", sync)
    spool.append(Cargo.HISTORY, 1, b"{}")
    assert synced == [("0000000000000001.history.1.tmp", [".tmp"]), (tmp_path.name, [".json"])]
