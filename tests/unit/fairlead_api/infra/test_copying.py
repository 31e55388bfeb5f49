"""Rows for COPY have exactly the bytes that the driver would have written."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.types.json import Jsonb

from fairlead.reports.decisions import DecisionReason
from fairlead_api.infra.copying import Field, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    instance: str
    second: int
    running: int
    kv_usage: float | None
    requests: int
    ttft_seconds: tuple[float, ...]
    share: float | None
    reason: DecisionReason
    terms: dict[str, float] | None
    at: float = 1_790_000_000.123457


KINDS = {
    "pool_id": "integer",
    "router": "text",
    "instance": "text",
    "second": "timestamp with time zone",
    "running": "bigint",
    "kv_usage": "real",
    "requests": "bigint",
    "ttft_seconds": "real[]",
    "share": "double precision",
    "reason": "text",
    "terms": "jsonb",
    "at": "timestamp with time zone",
    "sent_at": "timestamp with time zone",
}
SAMPLES = (
    Sample(
        instance="a",
        second=1_790_000_000,
        running=3,
        kv_usage=0.5,
        requests=2**53,
        ttft_seconds=(0.1, 7.0),
        share=0.25,
        reason=DecisionReason.SESSION_BOUND,
        terms={"load": 0.5},
    ),
    Sample(
        instance="größe",
        second=1_790_000_001,
        running=0,
        kv_usage=None,
        requests=0,
        ttft_seconds=(),
        share=None,
        reason=DecisionReason.SESSION_BOUND,
        terms=None,
        at=1_790_000_000.9999999,
    ),
)
GIVEN: dict[str, Any] = {"pool_id": lambda sample: 7 + sample.running, "router": "edge-0", "sent_at": 1_790_000_002.5}


def fields() -> list[Field]:
    return [Field(name, kind, given=name in GIVEN, value=GIVEN.get(name)) for name, kind in KINDS.items()]


def as_the_driver_writes(sample: Sample) -> bytes:
    """Return the bytes of a row, with each value written by the driver for the column's type."""
    known = psycopg.adapters.types
    content = len(KINDS).to_bytes(2, "big")
    for name, kind in KINDS.items():
        given = GIVEN.get(name)
        value: Any = given(sample) if callable(given) else given if name in GIVEN else getattr(sample, name)
        if value is not None and kind.startswith("timestamp"):
            value = datetime.fromtimestamp(value, UTC)
        if kind.endswith("[]"):
            value = list(value)
        if kind == "jsonb" and value is not None:
            value = Jsonb(value, dumps=lambda terms: str(terms).replace("'", '"').replace(" ", "").encode())
        if kind == "text":
            value = str(value)
        writing = Transformer()
        array = kind.endswith("[]")
        of = known[kind.removesuffix("[]")]
        writing.set_dumper_types([of.array_oid if array else of.oid], pq.Format.BINARY)
        (dumped,) = writing.dump_sequence([value], [psycopg.adapt.PyFormat.BINARY])
        content += b"\xff\xff\xff\xff" if dumped is None else len(dumped).to_bytes(4, "big") + bytes(dumped)
    return content


def test_rows_are_byte_for_byte_the_drivers_own() -> None:
    content = rows(fields(), SAMPLES)
    assert content[:19] == b"PGCOPY\n\xff\r\n\0" + bytes(8)
    assert content[-2:] == b"\xff\xff"
    assert content[19:-2] == b"".join(map(as_the_driver_writes, SAMPLES))


def test_a_type_that_nobody_can_write_is_named() -> None:
    with pytest.raises(TypeError, match="no tsvector can be copied"):
        Field("words", "tsvector")
