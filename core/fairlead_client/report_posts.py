"""A post of reports: consecutive batches, each encoded once when recorded, and the router's state at the time of
sending.

A batch may wait on a router's disk through an outage. Its records stay true in that time, but counts of requests in
flight would become wrong, and would mislead an operator that waits for an instance to fall idle. So a batch is kept
without these counts; they are inserted, as bytes, when the batch is sent.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec

from fairlead.reports.batches import ReportBatch, RouterState

_encoder = msgspec.json.Encoder()
_HUGE = re.compile(rb"[:,\[]-?[0-9]{19,}[,\]}]")
_batch = msgspec.json.Decoder(ReportBatch)


def encode_batch(batch: ReportBatch) -> bytes:
    """Encode a batch as JSON, the form in which it waits on disk. A row that JSON cannot carry is left out."""
    return _encoded(batch)


def decode_batch(content: bytes) -> ReportBatch:
    """Decode a batch that `encode_batch` of this version or of an earlier version wrote. Raises msgspec.DecodeError."""
    return _batch.decode(content)


def post_body(batches: Sequence[bytes], state: RouterState, behind: Sequence[float] = ()) -> bytes:
    """Return a JSON list of Reports, made from encoded batches. The first report has the whole state, and the other
    reports have only the time.

    `behind` has, for each batch, the seconds by which the clock that dated the batch is behind the state's clock. Empty
    = all batches were dated by the state's clock, as the first batch must be.
    """
    heads = [_encoded(state, _has_plausible_numbers)[1:-1]]
    heads += [b'"sent_at":' + _encoder.encode(state.sent_at - seconds) for seconds in behind[1:] or (0.0,) * (len(batches) - 1)]
    return b"[" + b",".join(b"{" + head + b"," + batch[1:] for head, batch in zip(heads, batches, strict=True)) + b"]"


def _encoded(record: Any, fits: Callable[[bytes], bool] = bool) -> bytes:
    """Return a record encoded as JSON, without rows that JSON cannot represent or that do not fit. So one such row does
    not prevent the whole report.
    """
    encoded = _tried(record)
    if fits(encoded):
        return encoded
    rows = {
        one.name: tuple(row for row in told if fits(_tried(row)))
        for one in fields(record)
        if isinstance(told := getattr(record, one.name), tuple)
    }
    return _encoder.encode(replace(record, **rows))


def _tried(record: Any) -> bytes:
    """Return a record encoded as JSON; empty bytes if the record contains an unpaired surrogate."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        return b""


def _has_plausible_numbers(encoded: bytes) -> bool:
    """Return whether the record could be encoded and contains no whole number beyond 64 bits."""
    return bool(encoded) and _HUGE.search(encoded) is None
