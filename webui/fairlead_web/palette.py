"""The colours of load, and the encoder of the PNG that shows them. Pure.

Cividis runs from dark blue to bright yellow and reads the same for colour-blind people; bright means more in both
themes. Level 255 is "no data" and transparent, so that the page's hatching shows through.
"""

import struct
import zlib

LEVELS = 255
NO_DATA = 255
LIMIT_AT = 0.6
"""Share of the colours used for values within the limit, when some value exceeds it."""


def _channel(value: float) -> int:
    return max(0, min(255, int(value + 0.5)))


def _cividis(t: float) -> tuple[int, int, int]:
    """Colour at t in 0-1, by the published polynomial fit of the cividis map."""
    red = -4.54 - t * (35.34 - t * (2381.73 - t * (6402.7 - t * (7024.72 - t * 2710.57))))
    green = 32.49 + t * (170.73 + t * (52.82 - t * (131.46 - t * (176.58 - t * 67.37))))
    blue = 81.24 + t * (442.36 - t * (2482.43 - t * (6167.24 - t * (6614.94 - t * 2475.67))))
    return _channel(red), _channel(green), _channel(blue)


def cividis() -> bytes:
    """256 RGB triples: 255 levels and a grey for "no data"."""
    return b"".join(bytes(_cividis(level / (LEVELS - 1))) for level in range(LEVELS)) + bytes((128, 128, 128))


def level_of(value: float | None, maximum: float, limit: float | None = None) -> int:
    """Palette index of a value on a scale 0..maximum; None → NO_DATA, values beyond the scale saturate.

    With a limit below the maximum the scale has two slopes: values within the limit use the first LIMIT_AT of the
    colours, whatever the maximum is; values beyond it share the remaining colours.
    """
    if value is None:
        return NO_DATA
    if maximum <= 0:
        return 0
    if limit is None or not 0 < limit < maximum:
        share = value / maximum
    elif value <= limit:
        share = value / limit * LIMIT_AT
    else:
        share = LIMIT_AT + (value - limit) / (maximum - limit) * (1 - LIMIT_AT)
    return int(max(0.0, min(1.0, share)) * (LEVELS - 1) + 0.5)


def encode_png(width: int, height: int, levels: bytes, palette: bytes) -> bytes:
    """8-bit palette PNG, one byte of `levels` per pixel in row-major order; index 255 is transparent.

    Raises ValueError when the sizes do not fit.
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
