"""Reads an uploaded trace. Rows that cannot be used are left out and reported. Pure."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fairlead.amounts import amount
from fairlead.errors import InvalidInput
from fairlead.reports.traffic import TRAFFIC_BLOCK_TOKENS
from fairlead_client.resources.simulations import MOST_UPLOADED, TraceRequest
from fairlead_process.json_documents import decode_json
from fairlead_process.text_files import TextUnreadable, text_lines

MOST_BYTES = 32 * 1024 * 1024
"""Maximum number of bytes of an upload with its form, and also of the trace after decompression."""
MOST_NAMED = 12
"""Maximum number of left-out rows that are reported individually."""
_ROW = msgspec.json.Decoder(TraceRequest)
_MOST_TOKENS = 10_000_000
_MOST_ID = 2**63
CAUSES = {
    "json": "not a row in Mooncake's format (fairlead traces convert writes it)",
    "time": "its timestamp is before the row above",
    "lengths": "its numbers of tokens are impossible",
    "blocks": f"hash_ids are not one for each {TRAFFIC_BLOCK_TOKENS} tokens of input_length",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A line of an upload that was left out: its number, from 1, and the cause, a key of CAUSES."""

    line: int
    cause: str

    @property
    def words(self) -> str:
        return f"line {self.line}: {CAUSES[self.cause]}"


def read_upload(content: bytes) -> tuple[list[TraceRequest], list[LeftOut]]:
    """Return the rows of a JSONL file that can be simulated, and the rows that were left out. The file may be
    compressed with gzip.

    Raises InvalidInput for a file with fewer than two usable rows, or with too many rows.
    """
    try:
        return _read(text_lines(io.BytesIO(content), most_bytes=MOST_BYTES))
    except TextUnreadable as error:
        raise InvalidInput("trace", None, f"the file {error}") from None


def _read(lines: Iterable[bytes]) -> tuple[list[TraceRequest], list[LeftOut]]:
    rows: list[TraceRequest] = []
    left_out: list[LeftOut] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row, cause = _row(line, rows[-1].timestamp if rows else 0.0)
        if row is None:
            left_out.append(LeftOut(line=number, cause=cause))
        else:
            rows.append(row)
        if len(rows) > MOST_UPLOADED:
            raise InvalidInput("trace", None, f"the file has more than {MOST_UPLOADED:,} rows; upload a part of it")
    if len(rows) < 2:
        why = f" ({left_out[0].words})" if left_out else ""
        raise InvalidInput("trace", None, f"the file has {amount(len(rows), 'usable row')}{why}; a simulation needs two or more")
    return rows, left_out


def _row(line: bytes, earliest: float) -> tuple[TraceRequest | None, str]:
    try:
        row = decode_json(line, _ROW)
    except msgspec.DecodeError:
        return None, "json"
    if not earliest <= row.timestamp <= 1e15:
        return None, "time"
    if not (1 <= row.input_length <= _MOST_TOKENS and 0 <= row.output_length <= _MOST_TOKENS):
        return None, "lengths"
    fitting = len(row.hash_ids) == -(-row.input_length // TRAFFIC_BLOCK_TOKENS) and all(0 <= one < _MOST_ID for one in row.hash_ids)
    return (row, "") if fitting else (None, "blocks")


def told(left_out: Iterable[LeftOut]) -> str:
    """Encode left-out lines for a URL: the first lines, each as number and cause, then the total number:
    `3-json.17-time.2041`.
    """
    found = list(left_out)
    return ".".join([*(f"{one.line}-{one.cause}" for one in found[:MOST_NAMED]), str(len(found))]) if found else ""


def heard(text: str) -> tuple[list[LeftOut], int]:
    """Decode text that `told` encoded: the reported lines, and the total number of left-out lines. Returns no lines and
    0 for any other text.
    """
    *named, total = text.split(".")[: MOST_NAMED + 1]
    pairs = [one.partition("-") for one in named]
    if not (_number(total) and all(_number(line) and cause in CAUSES for line, _, cause in pairs)):
        return [], 0
    return [LeftOut(line=int(line), cause=cause) for line, _, cause in pairs], int(total)


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
