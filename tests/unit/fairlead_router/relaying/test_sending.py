"""The time after which an engine wants a retry."""

import pytest

from fairlead_router.relaying.sending import retry_after

DATE = (b"date", b"Sat, 28 Nov 2026 12:00:00 GMT")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([(b"retry-after", b"7")], 7.0),
        ([(b"retry-after", b" 30 ")], 30.0),
        ([(b"retry-after", b"86400")], 600.0),
        ([(b"retry-after", b"9" * 5000)], 600.0),
        ([DATE, (b"retry-after", b"Sat, 28 Nov 2026 12:00:30 GMT")], 30.0),
        ([DATE, (b"retry-after", b"Sun, 29 Nov 2026 12:00:30 GMT")], 600.0),
        ([DATE, (b"retry-after", b"Sat, 28 Nov 2026 11:00:00 GMT")], None),
        ([(b"retry-after", b"Sat, 28 Nov 2026 12:00:30 GMT")], None),
        ([DATE, (b"retry-after", b"Sat, 28 Nov 2026 12:00:30")], None),
        ([(b"retry-after", b"0")], None),
        ([(b"retry-after", b"-5")], None),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"\xb2")], None),
        ([(b"retry-after", b"")], None),
        ([DATE, (b"retry-after", b"Mon, 01 Jan 99999999999999999999 00:00:00 GMT")], None),
        ([DATE, (b"retry-after", b"Mon, 01 Jan 2027 00:00:00 +99999999999999")], None),
        ([DATE, (b"retry-after", b"Mon, 01 Jan 2027 " + b"0" * 60_000)], None),
        ([], None),
    ],
)
def test_an_engine_tells_seconds_or_a_date_within_bounds(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
