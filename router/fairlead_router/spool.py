"""The disk spool: report batches that the control API has not acknowledged yet, one file each, bounded by bytes.

A batch is a file from before it is first sent until after it was acknowledged, so a crash at any point repeats it and never loses it; batches carry
ids the API stores once. When the bound is exceeded, the oldest `samples` (loads, decisions) go first and `history` (bindings, migrations,
rejections) only when no samples are left. Safe to use from several threads.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_NAME = re.compile(r"(\d{16})\.(history|samples)\.(\d+)\.json")

logger = logging.getLogger("fairlead.router.spool")


class Cargo(StrEnum):
    """What a batch holds, and with it how long it is kept."""

    HISTORY = "history"
    SAMPLES = "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledBatch:
    """A batch on disk. Batches are sent in order of `sequence`."""

    sequence: int
    cargo: Cargo
    records: int
    size: int
    path: Path


class Spool:
    """Batches in `directory`, which this process alone uses. `dropped` counts records given up, by cargo."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._batches: dict[int, SpooledBatch] = {}
        self._next = 1
        self.size = 0
        self.dropped: Counter[str] = Counter()

    def open(self) -> None:
        """Find what an earlier process left; half-written files, never sent, are removed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._directory.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                sequence, cargo, records = int(match[1]), Cargo(match[2]), int(match[3])
                self._add(SpooledBatch(sequence=sequence, cargo=cargo, records=records, size=path.stat().st_size, path=path))
            elif path.suffix == ".tmp":
                path.unlink()
        self._next = max(self._batches, default=0) + 1

    def __len__(self) -> int:
        return len(self._batches)

    def batches(self) -> tuple[SpooledBatch, ...]:
        """Everything kept, oldest first."""
        with self._lock:
            return tuple(self._batches[sequence] for sequence in sorted(self._batches))

    def append(self, cargo: Cargo, records: int, content: bytes) -> SpooledBatch:
        """Keep a batch. After this returns it survives the death of the process; history also that of the machine. Raises OSError."""
        with self._lock:
            path = self._directory / f"{self._next:016d}.{cargo}.{records}.json"
            temporary = path.with_suffix(".tmp")
            with temporary.open("wb") as file:
                file.write(content)
                if cargo is Cargo.HISTORY:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
            batch = SpooledBatch(sequence=self._next, cargo=cargo, records=records, size=len(content), path=path)
            self._next += 1
            self._add(batch)
            self._shrink()
            return batch

    def oldest(self) -> SpooledBatch | None:
        """The batch to send next."""
        with self._lock:
            return self._batches[min(self._batches)] if self._batches else None

    def discard(self, batch: SpooledBatch) -> None:
        """The batch was acknowledged (or shrinking took it already)."""
        with self._lock:
            self._remove(batch)

    def drop(self, batch: SpooledBatch) -> None:
        """Give a batch up; counted."""
        with self._lock:
            if self._remove(batch):
                self.dropped[batch.cargo.value] += batch.records

    def _add(self, batch: SpooledBatch) -> None:
        self._batches[batch.sequence] = batch
        self.size += batch.size

    def _remove(self, batch: SpooledBatch) -> bool:
        if self._batches.pop(batch.sequence, None) is None:
            return False
        self.size -= batch.size
        batch.path.unlink(missing_ok=True)
        return True

    def _shrink(self) -> None:
        for cargo in (Cargo.SAMPLES, Cargo.HISTORY):
            for sequence in sorted(self._batches):
                if self.size <= self._max_bytes:
                    return
                batch = self._batches[sequence]
                if batch.cargo is cargo:
                    self._remove(batch)
                    self.dropped[cargo.value] += batch.records
                    logger.warning("spool full, batch dropped", extra={"cargo": cargo.value, "records": batch.records})
