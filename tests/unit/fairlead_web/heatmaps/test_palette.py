"""The PNG encoder and the palette, against fixed bytes and by decoding."""

import hashlib
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_testing.examples import examples
from fairlead_web.heatmaps.palette import LIMIT_LEVEL, NO_DATA, SAME_LEVEL, change, change_level, cividis, encode_png, levels_of, limited


def level_of(value: float | None, maximum: float, limit: float | None = None) -> int:
    return levels_of([value], maximum, limit)[0]


def decoded(png: bytes) -> tuple[int, int, bytes, dict[bytes, bytes]]:
    """Return the width, height, pixel bytes and chunks of an 8-bit palette PNG; check every chunk's CRC."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += 12 + size
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour) == (8, 3)
    lines = zlib.decompress(chunks[b"IDAT"])
    pixels = b"".join(lines[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height))
    return width, height, pixels, chunks


@given(st.integers(1, 40), st.integers(1, 20))
@examples(40)
def test_a_picture_holds_exactly_the_levels_it_was_made_of(width: int, height: int) -> None:
    levels = bytes((width * 7 + height * 13 + index * 31) % 256 for index in range(width * height))
    assert decoded(encode_png(width, height, levels, cividis()))[:3] == (width, height, levels)


def test_no_data_is_transparent_and_every_level_is_not() -> None:
    chunks = decoded(encode_png(1, 1, bytes([NO_DATA]), cividis()))[3]
    assert chunks[b"tRNS"] == b"\xff" * 255 + b"\0"


def test_the_palette_is_the_published_one() -> None:
    palette = cividis()
    assert len(palette) == 768
    assert tuple(palette[:3]) == (0, 32, 81)
    assert tuple(palette[254 * 3 : 255 * 3]) == (253, 234, 69)
    assert hashlib.sha256(palette).hexdigest()[:16] == "397aa4ee60aa9622"


def test_bright_means_more_at_every_step() -> None:
    palette = cividis()
    light = [0.2126 * palette[i * 3] + 0.7152 * palette[i * 3 + 1] + 0.0722 * palette[i * 3 + 2] for i in range(255)]
    assert all(after >= before - 0.6 for before, after in pairwise(light))


def test_a_known_picture_keeps_its_pixels() -> None:
    width, height, pixels, chunks = decoded(encode_png(3, 2, bytes([0, 127, 254, 255, 10, 20]), cividis()))
    assert (width, height, pixels) == (3, 2, bytes([0, 127, 254, 255, 10, 20]))
    assert chunks[b"PLTE"] == cividis()


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 x 2"):
        encode_png(3, 2, b"12345", cividis())


@pytest.mark.parametrize(
    ("value", "maximum", "level"), [(None, 10, 255), (0, 10, 0), (10, 10, 254), (25, 10, 254), (5, 10, 127), (-1, 10, 0), (3, 0, 0)]
)
def test_values_become_levels_and_saturate(value: float | None, maximum: float, level: int) -> None:
    assert level_of(value, maximum) == level


@given(st.floats(0.001, 1e6), st.floats(1.001, 1000))
@examples(60)
def test_beyond_a_limit_the_colours_go_on_and_within_it_they_do_not_depend_on_the_maximum(limit: float, factor: float) -> None:
    maximum = limit * factor
    assert level_of(limit, maximum, limit) == level_of(limit, maximum * 3, limit)
    assert level_of(limit, maximum, limit) < level_of(maximum, maximum, limit) == 254
    half = level_of(limit + (maximum - limit) / 2, maximum, limit)
    assert level_of(limit, maximum, limit) < half < 254


@given(st.floats(0, 1e5), st.floats(0.001, 1e4), st.floats(1, 1000))
@examples(200)
def test_a_level_tells_whether_its_value_is_over_the_limit(value: float, limit: float, factor: float) -> None:
    level = level_of(value, limit * factor, limit)
    assert (level > LIMIT_LEVEL) == (value > limit)


def test_a_cell_far_over_the_limit_never_looks_like_one_at_it() -> None:
    palette = limited()

    def colour(value: float) -> tuple[int, ...]:
        level = level_of(value, 63.0, 5.0)
        return tuple(palette[level * 3 : level * 3 + 3])

    at, little, much = colour(5.0), colour(5.1), colour(63.0)
    assert all(sum(abs(one - other) for one, other in zip(*pair, strict=True)) > 80 for pair in ((at, little), (little, much), (at, much)))


def test_a_change_is_blue_when_less_and_orange_when_more() -> None:
    assert [change_level(value, 10.0) for value in (None, -10.0, -99.0, 0.0, 10.0)] == [NO_DATA, 0, 0, SAME_LEVEL, 254]
    assert change_level(0.0, 0.0) == SAME_LEVEL
    palette = change()
    less, more = palette[:3], palette[254 * 3 : 255 * 3]
    assert less[2] > less[0]
    assert more[0] > more[2]
