"""A post of reports: neighbouring batches, each encoded once when recorded, and the router's state when they are sent.

A batch may wait on a router's disk through an outage. Its records stay true meanwhile, but counts of requests in
flight would not, and would mislead an operator that waits for an instance to fall idle. So a batch is kept without
those counts; they are inserted, as bytes, when it is sent.
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
    """A batch as JSON, the form in which it waits on disk. A row that JSON cannot carry is left out."""
    return _encoded(batch)


def decode_batch(content: bytes) -> ReportBatch:
    """The batch that `encode_batch` wrote, in this version or an earlier one. Raises msgspec.DecodeError."""
    return _batch.decode(content)


def post_body(batches: Sequence[bytes], state: RouterState) -> bytes:
    """A JSON list of Reports from encoded batches: the first has the whole state, the others only the time."""
    whole = _encoded(state, _has_plausible_numbers)[1:-1]
    time_only = b'"sent_at":' + _encoder.encode(state.sent_at)
    return b"[" + b",".join(b"{" + (time_only if number else whole) + b"," + batch[1:] for number, batch in enumerate(batches)) + b"]"


def _encoded(record: Any, fits: Callable[[bytes], bool] = bool) -> bytes:
    """As JSON, without the rows that JSON cannot carry or that do not fit: one row must not cost a whole report."""
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
    """Empty if it has half of a pair of surrogates."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        return b""


def _has_plausible_numbers(encoded: bytes) -> bool:
    """Whether it was written, and has no whole number beyond 64 bits."""
    return bool(encoded) and _HUGE.search(encoded) is None
