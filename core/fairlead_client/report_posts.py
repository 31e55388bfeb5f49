"""A post of reports: neighbouring batches, each encoded once when recorded, and the router's state when they are sent.

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
    """A batch as JSON, the form in which it waits on disk."""
    return _encoder.encode(batch)


def decode_batch(content: bytes) -> ReportBatch:
    """The batch that `encode_batch` wrote, in this version or an earlier one. Raises msgspec.DecodeError."""
    return _batch.decode(content)


def post_body(batches: Sequence[bytes], state: RouterState, behind: Sequence[float] = ()) -> bytes:
    """A JSON list of Reports from encoded batches: the first has the whole state, the others only the time.

    `behind` is by how many seconds the clock that dated each batch is behind the state's; empty = all are of one clock,
    as the first must be.
    """
    heads = [_encoder.encode(state)[1:-1]]
    heads += [b'"sent_at":' + _encoder.encode(state.sent_at - seconds) for seconds in behind[1:] or (0.0,) * (len(batches) - 1)]
    return b"[" + b",".join(b"{" + head + b"," + batch[1:] for head, batch in zip(heads, batches, strict=True)) + b"]"
