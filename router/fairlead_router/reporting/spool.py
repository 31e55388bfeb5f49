"""The disk spool: the report batches that the control API has not acknowledged yet. Each batch is one file, and the sum
of their bytes is bounded.

A batch is written before it is first sent, and deleted after it was acknowledged. So a crash may send a batch again but
never lose it, and the API stores each batch id once. While the disk accepts no batches, batches wait in memory and are
sent from there. They are lost if the process ends before they are sent. If the bound is exceeded, the oldest `samples`
(loads, decisions) are deleted first. `history` (bindings, migrations, rejections) is deleted only if there are no
samples left. A batch that the API cannot accept is moved to the folder `aside`, where it does not block the others. The
spool can be used from several threads.

Each process dates its batches by its own clock. The offset of the API's clock is stored with them, so that a later
process can report the error of the times in the batches.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from fairlead.reports.batches import Cargo
from fairlead_process.clock import file_age

MOST_UNWRITTEN_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of batches that wait in memory while the disk accepts none. They count towards the spool's
bound.
"""
MOST_ASIDE = 256
"""Maximum number of batches in the folder `aside`. Beyond it, the oldest batch is deleted."""

_CLOCKS = "clocks.json"
_clocks = msgspec.json.Decoder(dict[int, float])
_NAME = re.compile(r"(\d{16})\.(history|samples)\.(\d+)\.json")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledBatch:
    """A batch that was added to the spool at `written_at`. The batches of a cargo are sent in the order of `sequence`.

    `api_ahead`: for a batch of an earlier process, the seconds by which the API's clock was ahead of that process's
    clock; 0.0 if that process never received the API's time. None for a batch of this process.
    """

    sequence: int
    cargo: Cargo
    records: int
    size: int
    path: Path
    written_at: float
    api_ahead: float | None = None
    content: bytes | None = None
    """The bytes of the batch while the disk has not accepted them; None once they are on disk."""

    def read(self) -> bytes:
        """Return the bytes of the batch. Raises OSError."""
        return self.path.read_bytes() if self.content is None else self.content


class Spool:
    """The batches in `directory`, which no other process uses. `now` is this process's clock.

    `dropped`: by cargo, the number of records that were deleted without being acknowledged. `aside`: number of batches
    in the folder `aside`.
    """

    def __init__(self, directory: Path, max_bytes: int, now: Callable[[], float]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.Lock()
        self._batches: dict[Cargo, dict[int, SpooledBatch]] = {cargo: {} for cargo in Cargo}  # oldest first
        self._lent: set[int] = set()
        self._unwritten: dict[int, SpooledBatch] = {}
        self._unwritten_bytes = 0
        self._undeleted: set[Path] = set()
        """Files of batches that have left the spool but that could not be deleted. A later process would send them
        again.
        """
        self._clocks: dict[int, float] = {}
        """By the sequence number of a process's first batch: the seconds by which the API's clock was ahead of that
        process's clock.
        """
        self._first = self._next = 1
        self.size = 0
        self.dropped: Counter[str] = Counter()
        self.aside = 0

    def open(self) -> None:
        """Find the batches that an earlier process left. Half-written files are deleted: they were never sent."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._clocks = self._read_clocks()
        for path in sorted(self._directory.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                sequence, cargo, records = int(match[1]), Cargo(match[2]), int(match[3])
                about = path.stat()
                self._add(
                    SpooledBatch(
                        sequence=sequence,
                        cargo=cargo,
                        records=records,
                        size=about.st_size,
                        path=path,
                        written_at=self._now() - file_age(about.st_mtime),
                        api_ahead=self._clocks.get(max((first for first in self._clocks if first <= sequence), default=0), 0.0),
                    )
                )
                self._next = sequence + 1
            elif path.suffix == ".tmp":
                path.unlink()
        kept = self._aside_files()
        self.aside = len(kept)
        self._first = self._next = max([self._next, *(int(path.name[:16]) + 1 for path in kept)])
        self._keep_clocks(0.0)

    def __len__(self) -> int:
        return sum(len(batches) for batches in self._batches.values())

    def batches(self, cargo: Cargo) -> tuple[SpooledBatch, ...]:
        """Return all spooled batches of one cargo, oldest first."""
        with self._lock:
            return tuple(self._batches[cargo].values())

    def hear_clock(self, api_ahead: float) -> None:
        """Set the seconds by which the API's clock is ahead of this process's clock."""
        with self._lock:
            self._keep_clocks(api_ahead)

    def _keep_clocks(self, api_ahead: float) -> None:
        """Store the clock offsets that the batches on disk need. If all of them are zero, remove the file."""
        path, known = self._directory / _CLOCKS, self._clocks
        oldest = min((sequence for batches in self._batches.values() for sequence in batches), default=self._next)
        needed = [first for first in known if first <= oldest][-1:] + [first for first in known if oldest < first < self._first]
        self._clocks = {first: known[first] for first in needed} | {self._first: api_ahead}
        try:
            if any(self._clocks.values()):
                path.with_suffix(".tmp").write_bytes(msgspec.json.encode(self._clocks))
                path.with_suffix(".tmp").replace(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the offset of the API's clock could not be stored", extra={"error": str(error)})

    def _read_clocks(self) -> dict[int, float]:
        """Return the stored clock offsets, earliest process first. A damaged file counts as missing and is logged."""
        try:
            return dict(sorted(_clocks.decode((self._directory / _CLOCKS).read_bytes()).items()))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("the stored offset of the API's clock is unusable", extra={"file": _CLOCKS, "error": str(error)})
        return {}

    def oldest_written_at(self) -> float | None:
        """Return the time at which the oldest batch was added; None if the spool is empty."""
        with self._lock:
            return min((next(iter(batches.values())).written_at for batches in self._batches.values() if batches), default=None)

    def append(self, cargo: Cargo, records: int, content: bytes) -> SpooledBatch:
        """Add a batch to the spool, and return it.

        When this returns, a batch on disk survives the death of the process, and a batch of history also a crash of the
        machine. If the disk does not accept this batch, or has not accepted an earlier batch, this batch stays in
        memory until `write_again` can write it.
        """
        with self._lock:
            path = self._directory / f"{self._next:016d}.{cargo}.{records}.json"
            batch = SpooledBatch(
                sequence=self._next, cargo=cargo, records=records, size=len(content), path=path, written_at=self._now(), content=content
            )
            self._next += 1
            if not self._unwritten and self._write(batch):
                batch = replace(batch, content=None)
            else:
                self._unwritten[batch.sequence] = batch
                self._unwritten_bytes += batch.size
            self._add(batch)
            self._shrink()
            return batch

    @property
    def unwritten(self) -> int:
        """Number of batches that the disk has not accepted yet."""
        return len(self._unwritten)

    @property
    def waits_for_disk(self) -> bool:
        """Whether the disk has refused a write or a deletion that `write_again` will try again."""
        return bool(self._unwritten or self._undeleted)

    def write_again(self) -> None:
        """Write the batches that the disk has not accepted yet, until the disk refuses one. Also delete the files that
        could not be deleted before.
        """
        with self._lock:
            for path in tuple(self._undeleted):
                self._delete(path)
            for sequence, batch in tuple(self._unwritten.items()):
                if not self._write(batch):
                    return
                self._batches[batch.cargo][sequence] = replace(batch, content=None)
                self._forget_unwritten(sequence)

    def _write(self, batch: SpooledBatch) -> bool:
        """Write the batch to disk. Return whether the disk accepted it."""
        assert batch.content is not None
        temporary = batch.path.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(batch.content)
                if batch.cargo is Cargo.HISTORY:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(batch.path)
            if batch.cargo is Cargo.HISTORY:
                _sync(self._directory)  # else the file has what was written, and no name after a crash
        except OSError as error:
            logger.warning("cannot write to the spool", extra={"error": str(error), "waiting": len(self._unwritten)})
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            return False
        return True

    def lend(self, cargo: Cargo, most_batches: int, most_records: int, most_bytes: int) -> list[SpooledBatch]:
        """Return the oldest consecutive batches that are not lent, to be sent as one post, and mark them as lent.

        Returns at least one batch if there is one, and more within the limits. The caller ends each loan with
        `give_back`, `discard`, `drop` or `set_aside`.
        """
        with self._lock:
            lent: list[SpooledBatch] = []
            records = size = 0
            for sequence, batch in self._batches[cargo].items():
                if sequence in self._lent:
                    continue
                records, size = records + batch.records, size + batch.size
                if lent and (len(lent) >= most_batches or records > most_records or size > most_bytes):
                    break
                lent.append(batch)
            self._lent.update(batch.sequence for batch in lent)
            return lent

    def give_back(self, batches: Iterable[SpooledBatch]) -> None:
        """End the loan of batches that the API did not accept, so that they can be lent again."""
        with self._lock:
            self._lent.difference_update(batch.sequence for batch in batches)
            self._shrink()

    def discard(self, batches: Iterable[SpooledBatch]) -> None:
        """Delete batches that the API has acknowledged."""
        with self._lock:
            for batch in batches:
                self._remove(batch)

    def drop(self, batch: SpooledBatch) -> None:
        """Delete a batch that the API has not acknowledged, and count its records in `dropped`."""
        with self._lock:
            if self._remove(batch):
                self.dropped[batch.cargo.value] += batch.records

    def set_aside(self, batch: SpooledBatch) -> Path:
        """Move a batch to the folder `aside`, where a person can examine it. Return its new path. Raises OSError."""
        with self._lock:
            folder = self._directory / "aside"
            folder.mkdir(exist_ok=True)
            place = folder / batch.path.name
            batch.path.replace(place)
            self._remove(batch)
            kept = self._aside_files()
            for path in kept[:-MOST_ASIDE]:
                match = _NAME.fullmatch(path.name)
                if match is not None:
                    self.dropped[match[2]] += int(match[3])
                path.unlink(missing_ok=True)
            self.aside = min(len(kept), MOST_ASIDE)
            return place

    def _aside_files(self) -> list[Path]:
        folder = self._directory / "aside"
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)) if folder.is_dir() else []

    def _add(self, batch: SpooledBatch) -> None:
        self._batches[batch.cargo][batch.sequence] = batch
        self.size += batch.size

    def _remove(self, batch: SpooledBatch) -> bool:
        self._lent.discard(batch.sequence)
        if self._batches[batch.cargo].pop(batch.sequence, None) is None:
            return False
        self.size -= batch.size
        self._forget_unwritten(batch.sequence)
        self._delete(batch.path)
        return True

    def _delete(self, path: Path) -> None:
        """Delete a file. If the disk refuses, `write_again` tries again."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if path not in self._undeleted:
                logger.warning("cannot delete from the spool", extra={"file": path.name, "error": str(error)})
            self._undeleted.add(path)
        else:
            self._undeleted.discard(path)

    def _forget_unwritten(self, sequence: int) -> None:
        batch = self._unwritten.pop(sequence, None)
        if batch is not None:
            self._unwritten_bytes -= batch.size

    def _lent_samples(self) -> int:
        """Return the number of bytes of the samples that are lent."""
        return sum(batch.size for batch in self._batches[Cargo.SAMPLES].values() if batch.sequence in self._lent)

    def _shrink(self) -> None:
        """Delete batches until the bounds hold, samples first.

        Batches that are being sent are not deleted, because the API may have received them. When history is deleted,
        samples that are being sent do not count towards the bound, so that no history is deleted in their place. The
        bound may then be exceeded until these samples are given back.
        """
        for cargo in (Cargo.SAMPLES, Cargo.HISTORY):
            for batch in tuple(self._batches[cargo].values()):
                if self.size - (self._lent_samples() if cargo is Cargo.HISTORY else 0) <= self._max_bytes:
                    break
                self._give_up(batch)
            for batch in tuple(self._unwritten.values()):
                if self._unwritten_bytes <= MOST_UNWRITTEN_BYTES:
                    break
                if batch.cargo is cargo:
                    self._give_up(batch)

    def _give_up(self, batch: SpooledBatch) -> None:
        if batch.sequence not in self._lent:
            self._remove(batch)
            self.dropped[batch.cargo.value] += batch.records
            logger.warning("spool full, batch dropped", extra={"cargo": batch.cargo.value, "records": batch.records})


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
