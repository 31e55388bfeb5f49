"""A post of reports: consecutive batches, each encoded once when recorded, and the router's state at the time of
sending.

A batch may wait on a router's disk through an outage. Its records stay true meanwhile, but counts of requests in
flight would not, and would mislead an operator that waits for an instance to fall idle. So a batch is kept without
those counts; they are inserted, as bytes, when it is sent.
"""

from collections.abc import Sequence

import msgspec

from fairlead.reports.batches import ReportBatch, RouterState

_encoder = msgspec.json.Encoder()
_batch = msgspec.json.Decoder(ReportBatch)


def encode_batch(batch: ReportBatch) -> bytes:
    """A batch as JSON, in the form kept on disk."""
    return _encoder.encode(batch)


def decode_batch(content: bytes) -> ReportBatch:
    """Decodes a batch that `encode_batch` of this version or an earlier one wrote. Raises msgspec.DecodeError."""
    return _batch.decode(content)


def post_body(batches: Sequence[bytes], state: RouterState) -> bytes:
    """A JSON list of Reports from encoded batches: the first has the whole state, the others only the time."""
    whole = _encoder.encode(state)[1:-1]
    time_only = b'"sent_at":' + _encoder.encode(state.sent_at)
    return b"[" + b",".join(b"{" + (time_only if number else whole) + b"," + batch[1:] for number, batch in enumerate(batches)) + b"]"
