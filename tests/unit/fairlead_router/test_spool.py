"""The disk spool."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.spool import Cargo, Spool


def _spool(directory: Path, max_bytes: int = 1_000_000) -> Spool:
    spool = Spool(directory, max_bytes)
    spool.open()
    return spool


def test_batches_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    for index in range(12):
        spool.append(Cargo.HISTORY if index % 2 else Cargo.SAMPLES, index, b"{%d}" % index)
    again = _spool(tmp_path)
    assert [batch.path.read_bytes() for batch in again.batches()] == [b"{%d}" % index for index in range(12)]
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
    spool.discard(first)
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
                assert all(batch.cargo is Cargo.HISTORY for batch in spool.batches())
            oldest = spool.oldest()
            if acknowledge and oldest is not None:
                spool.discard(oldest)
                kept -= 1
        assert len(spool) + sum(spool.dropped.values()) == kept
