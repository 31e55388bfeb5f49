"""The colours of load, and the encoder of the PNG that shows them. Pure.

There are three scales, each of 255 levels. *Plain* is cividis, from dark blue to bright yellow. It reads the same for
colour-blind people, and bright means more in both themes. *Limited* is cividis up to a limit, then from orange to deep
red beyond it, so that a value at the limit and a value far over it never look alike. *Change* runs from blue (less)
over grey to orange (more). Level 255 is "no data" and transparent, so that the page's hatching shows through.
"""

import struct
import zlib
from collections.abc import Sequence

import numpy as np

LEVELS = 255
NO_DATA = 255
LIMIT_LEVEL = 152
"""The level of a value exactly at the limit. Higher levels mean values beyond the limit."""
LIMIT_AT = LIMIT_LEVEL / (LEVELS - 1)
"""Position of the limit on the limited scale, from 0 to 1."""
SAME_LEVEL = 127
"""The level of the change scale that means no change."""

_BEYOND = ((250, 145, 40), (222, 68, 45), (150, 12, 44))
_LESS, _SAME, _MORE = (24, 106, 196), (146, 150, 154), (236, 128, 22)


def _channel(value: float) -> int:
    return max(0, min(255, int(value + 0.5)))


def _cividis(t: float) -> tuple[int, int, int]:
    """Return the colour at t (0-1), by the published polynomial fit of the cividis colour map."""
    red = -4.54 - t * (35.34 - t * (2381.73 - t * (6402.7 - t * (7024.72 - t * 2710.57))))
    green = 32.49 + t * (170.73 + t * (52.82 - t * (131.46 - t * (176.58 - t * 67.37))))
    blue = 81.24 + t * (442.36 - t * (2482.43 - t * (6167.24 - t * (6614.94 - t * 2475.67))))
    return _channel(red), _channel(green), _channel(blue)


def cividis() -> bytes:
    """Return 256 RGB triples of the plain scale: 255 levels and a grey for "no data"."""
    return b"".join(bytes(_cividis(level / (LEVELS - 1))) for level in range(LEVELS)) + bytes((128, 128, 128))


def limited() -> bytes:
    """Return 256 RGB triples of the limited scale: cividis up to LIMIT_LEVEL, orange to deep red above it, and a grey
    for "no data".
    """
    within = b"".join(bytes(_cividis(level / LIMIT_LEVEL)) for level in range(LIMIT_LEVEL + 1))
    count = LEVELS - LIMIT_LEVEL - 1
    beyond = b"".join(bytes(_between(_BEYOND, step / (count - 1))) for step in range(count))
    return within + beyond + bytes((128, 128, 128))


def change() -> bytes:
    """Return 256 RGB triples of the change scale: from blue through grey, at SAME_LEVEL, to orange; and a grey for "no
    data".
    """
    levels = b"".join(bytes(_between((_LESS, _SAME, _MORE), level / (LEVELS - 1))) for level in range(LEVELS))
    return levels + bytes((128, 128, 128))


def _between(stops: tuple[tuple[int, int, int], ...], t: float) -> tuple[int, int, int]:
    place = t * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    part = place - index
    red, green, blue = (one + (other - one) * part for one, other in zip(stops[index], stops[index + 1], strict=True))
    return _channel(red), _channel(green), _channel(blue)


def levels_of(values: Sequence[float | None], maximum: float, limit: float | None = None) -> bytes:
    """Return the palette indices of values on a scale 0..maximum. None becomes NO_DATA; a value beyond the scale gets
    the last level.

    With a limit the scale has two slopes. Values within the limit use the levels up to LIMIT_LEVEL, regardless of the
    maximum. Values beyond it use the levels above, so that even the smallest excess is visible. All values are computed
    at once, because a heatmap may have 184,000 cells.
    """
    found = np.array(values, dtype=np.float64)  # None becomes NaN
    known = ~np.isnan(found)
    found[~known] = 0.0
    top = LEVELS - 1
    if limit is None or limit <= 0:
        shares = np.clip(found / maximum, 0.0, 1.0) if maximum > 0 else np.zeros_like(found)
        levels = (shares * top + 0.5).astype(np.uint8)
    else:
        first, over = LIMIT_LEVEL + 1, maximum - limit
        within = np.clip(found / limit, 0.0, 1.0) * LIMIT_LEVEL
        beyond = np.clip((found - limit) / over, 0.0, 1.0) * (top - first) if over > 0 else np.full_like(found, top - first)
        inside = found <= limit
        levels = (np.where(inside, within, beyond) + 0.5).astype(np.uint8) + np.where(inside, 0, first).astype(np.uint8)
    return bytes(np.where(known, levels, np.uint8(NO_DATA)))


def change_level(difference: float | None, most: float) -> int:
    """Return the palette index of a change on a scale -most..most; None becomes NO_DATA."""
    if difference is None:
        return NO_DATA
    if most <= 0:
        return SAME_LEVEL
    return int((max(-1.0, min(1.0, difference / most)) + 1) * SAME_LEVEL + 0.5)


def encode_png(width: int, height: int, levels: bytes, palette: bytes) -> bytes:
    """Encode an 8-bit palette PNG, one byte of `levels` per pixel in row-major order; index 255 is transparent.

    Raises ValueError if the sizes do not match.
    """
    if width < 1 or height < 1 or len(levels) != width * height or len(palette) != 768:
        raise ValueError(f"{len(levels)} levels and {len(palette)} palette bytes do not make a {width} x {height} picture")
    lines = b"".join(b"\0" + levels[row * width : (row + 1) * width] for row in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + _chunk(b"PLTE", palette)
        + _chunk(b"tRNS", b"\xff" * 255 + b"\0")
        + _chunk(b"IDAT", zlib.compress(lines, 6))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
