"""Recordings of an engine: JSON Lines, plain or gzipped, in order of arrival. docs/kv-events.md describes the format.

An unusable row is left out and reported with file, line and remedy.
"""

import binascii
import gzip
import zlib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from fairlead.errors import InvalidInput
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest
from fairlead.kv_events.sources import Source
from fairlead_process.json_documents import decode_json
from fairlead_router.kv_events.wire import BatchUnreadable, decode

_Seconds = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]
_TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]


class _EventRow(msgspec.Struct, tag="event", tag_field="kind"):
    at: _Seconds
    seq: _Count
    payload: str
    topic: str = ""


class _RequestRow(msgspec.Struct, tag="request", tag_field="kind"):
    sent: _Seconds
    prompt_token_ids: list[_TokenId]
    cached_tokens: _Count
    done: _Seconds | None = None
    output_token_ids: list[_TokenId] = []
    id: int | str | None = None
    topic: str | None = None
    lora_name: str | None = None
    cache_salt: str | None = None


class _MetricsRow(msgspec.Struct, tag="metrics", tag_field="kind"): ...


_ROW: msgspec.json.Decoder[_EventRow | _RequestRow | _MetricsRow] = msgspec.json.Decoder(_EventRow | _RequestRow | _MetricsRow)


@dataclass(slots=True, kw_only=True)
class Recording:
    """A parsed recording. `bad_rows` has a message for each unusable row."""

    batches: list[RecordedBatch] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    bad_rows: list[str] = field(default_factory=list)


def read_recording(path: Path) -> Recording:
    """Read a recording from a file. Raises InvalidInput if no row of it is usable."""
    recording = Recording()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), start=1):
                if line.strip():
                    _read_row(recording, line, f"{path}:{number}")
    except OSError as error:
        if not recording.batches and not recording.requests:
            raise InvalidInput("RECORDING", str(path), f"name a recording; it cannot be read: {error.strerror or error}") from None
        recording.bad_rows.append(f"{path}: cannot be read to its end: {error.strerror or error}; record it again")
    except (EOFError, zlib.error):
        recording.bad_rows.append(f"{path}: the gzip stream is cut off; record it again, or copy it completely")
    for what, found in (("event", recording.batches), ("request", recording.requests)):
        if not found:
            hint = f" ({recording.bad_rows[0]})" if recording.bad_rows else ""
            raise InvalidInput(
                "RECORDING", str(path), f"give a recording of events and requests; no row of kind {what!r} can be used{hint}"
            )
    return recording


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    magic = file.read(2)
    file.seek(0)
    if magic == b"\x1f\x8b":
        with gzip.open(file) as plain:
            yield from plain
    else:
        yield from file


def _read_row(recording: Recording, line: bytes, place: str) -> None:
    try:
        row = decode_json(line, _ROW)
        if isinstance(row, _EventRow):
            recording.batches.append(_batch(row))
        elif isinstance(row, _RequestRow):
            recording.requests.append(_request(row, len(recording.requests)))
    except msgspec.MsgspecError as error:
        recording.bad_rows.append(f"{place}: {error}; write one JSON object per line, of kind event, request or metrics")
    except (BatchUnreadable, binascii.Error) as error:
        why = str(error) if isinstance(error, BatchUnreadable) else "no base64"
        recording.bad_rows.append(f"{place}: payload: {why}; it is the base64 of the message's msgpack frame")


def _batch(row: _EventRow) -> RecordedBatch:
    batch = decode(b64decode(row.payload, validate=True))
    source = Source(instance=row.topic, rank=batch.data_parallel_rank or 0)
    return RecordedBatch(source=source, number=row.seq, arrived=row.at, stamp=batch.ts, events=batch.events)


def _request(row: _RequestRow, number: int) -> RecordedRequest:
    return RecordedRequest(
        name=number if row.id is None else row.id,
        sent=row.sent,
        done=row.sent if row.done is None else row.done,
        prompt_token_ids=row.prompt_token_ids,
        output_token_ids=row.output_token_ids,
        cached_tokens=row.cached_tokens,
        instance=row.topic,
        lora_name=row.lora_name,
        cache_salt=row.cache_salt,
    )
