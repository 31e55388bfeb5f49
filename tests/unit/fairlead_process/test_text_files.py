"""Text files in the encodings in which people save them."""

import gzip
import io
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.text_files import TextUnreadable, text_lines

packed = partial(gzip.compress, mtime=0)
Saved = Callable[[bytes], bytes]
WAYS: dict[str, Saved] = {
    "plain": lambda text: text,
    "marked": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "UTF-16, big end first": lambda text: b"\xfe\xff" + text.decode().encode("utf-16-be"),
    "UTF-32": lambda text: text.decode().encode("utf-32"),
}


def lines(content: bytes, most_line_bytes: int = 1000, most_bytes: int | None = None) -> list[bytes]:
    return list(text_lines(io.BytesIO(content), most_line_bytes=most_line_bytes, most_bytes=most_bytes))


def complaint(content: bytes, most_bytes: int | None = None) -> str:
    with pytest.raises(TextUnreadable) as caught:
        lines(content, most_bytes=most_bytes)
    return f"{caught.value.line}: {caught.value}"


TEXTS = st.lists(st.text(st.characters(exclude_characters="\0\ufeff", exclude_categories=["Cs"]), max_size=20), max_size=6).map("\n".join)


@given(TEXTS, st.sampled_from(sorted(WAYS)), st.integers(0, 3))
def test_the_same_lines_come_from_a_text_however_it_was_saved(text: str, way: str, members: int) -> None:
    saved = WAYS[way](text.encode())
    if members:
        cuts = [len(saved) * part // members for part in range(members + 1)]
        saved = b"".join(packed(saved[begin:end]) for begin, end in pairwise(cuts)) + bytes(members)
    assert lines(saved) == io.BytesIO(text.encode()).readlines()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04rest", "0: is a ZIP archive; unpack it first"),
        (b"(\xb5/\xfdrest", "0: is packed by zstd; unpack it first (zstd -d)"),
        (b"PAR1rest", "0: is a Parquet file; write it as JSON lines or CSV first"),
        (b"a\0b", "0: holds zero bytes, so it is not text in UTF-8; save it as UTF-8"),
        ("text".encode("utf-16-le"), "0: holds zero bytes, so it is not text in UTF-8; save it as UTF-8"),
        (b"\xff\xfea", "1: is not valid text in the encoding that its byte-order mark names"),
        (packed(b"a" * 500)[:-9], "0: is packed by gzip, but its end is missing; fetch or pack it again"),
        (b"\x1f\x8b", "0: is packed by gzip, but its end is missing; fetch or pack it again"),
        (b"\x1f\x8bother than it says", "0: is packed by gzip, but damaged; fetch or pack it again"),
        (packed(b"a\n") + b"more", "0: is packed by gzip, but damaged; fetch or pack it again"),
        (packed(packed(b"a\n")), "0: is packed by gzip twice; unpack it once"),
        (packed(packed(b"PK\x03\x04")), "0: is packed by gzip twice; unpack it once"),
        (b"a\n" + b"b" * 1001, "2: is longer than 0 MiB; write one row to a line"),
    ],
)
def test_what_cannot_be_read_is_told(content: bytes, told: str) -> None:
    assert complaint(content) == told


def test_nothing_is_unpacked_without_bounds() -> None:
    assert complaint(packed(bytes(2**24))) == "0: holds zero bytes, so it is not text in UTF-8; save it as UTF-8"
    assert complaint(packed(b"\n" * 2**24)) == "0: unpacks to more than 250 times its size, which no data of this kind does"
    assert complaint(b"a\n" * 10, most_bytes=19) == "0: holds more than 0 MiB; give a part of it"
    assert len(lines(b"a\n" * 10, most_bytes=20)) == 10
