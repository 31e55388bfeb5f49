"""A post of reports: neighbouring batches, encoded once when they were recorded, with the state of the router
at the moment of sending.

A batch may wait on a router's disk through an outage. Its records stay true meanwhile; counts of what is in flight
would not, and would mislead an operator that waits for an instance to fall idle. So a batch is kept without them, and
they are put in, as bytes, when it is sent.
"""

from collections.abc import Sequence

import msgspec

from fairlead.reports import ReportBatch, RouterState

_encoder = msgspec.json.Encoder()
_batch = msgspec.json.Decoder(ReportBatch)


def encode_batch(batch: ReportBatch) -> bytes:
    """A batch as JSON, as it waits on disk."""
    return _encoder.encode(batch)


def decode_batch(content: bytes) -> ReportBatch:
    """The batch of `encode_batch`, or of an earlier version's. Raises msgspec.DecodeError."""
    return _batch.decode(content)


def post_body(batches: Sequence[bytes], state: RouterState) -> bytes:
    """A JSON list of Reports from encoded batches: the first has the whole state, the others only the time."""
    whole = _encoder.encode(state)[1:-1]
    time_only = b'"sent_at":' + _encoder.encode(state.sent_at)
    return b"[" + b",".join(b"{" + (time_only if number else whole) + b"," + batch[1:] for number, batch in enumerate(batches)) + b"]"
