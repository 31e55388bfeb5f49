"""Images, sounds, videos and files in a prompt: the identity of each medium, and an estimate of its number of tokens.

In the canonical prompt, a medium is represented by its hash, repeated until the bytes are as many as its tokens would
have as text. So two prompts have the same bytes only if their media are the same, the text after a medium is at about
the right position, and the length of the bytes measures the whole prompt. Engines' reports of such prompts correct the
estimate, as for every other kind of prompt (`fairlead.routing.knowledge.token_sizes`).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_128_hexdigest

from fairlead_router.protocols.canonical_json import canonical_json

BYTES_PER_TOKEN = 4

IMAGE_TOKENS = 1024
"""Estimated tokens of an image of unknown size, such as one that the engine fetches by its address."""
PIXELS_PER_TOKEN = 28 * 28
"""Pixels per token of an image. Qwen's vision models make one token from this number of pixels (14 x 14 patches, four
to a token); Pixtral and InternVL from 256 to 784, Claude from 750.
"""
FEWEST_IMAGE_TOKENS, MOST_IMAGE_TOKENS = 64, 16_384
"""The bounds in tokens to which Qwen's processor scales images; other models stay within them."""

AUDIO_TOKENS_PER_SECOND = 25
"""Tokens per second of sound that Qwen's audio models make; other models make between 6 and 50."""
AUDIO_BYTES_PER_SECOND = 16_000
"""Bytes per second of compressed sound, at 128 kbit/s. For a WAV file, the rate in its header counts."""
MOST_AUDIO_TOKENS = 16_384

VIDEO_TOKENS = 4096
"""Estimated tokens of a video: vLLM samples 32 frames, with 256 tokens for two frames."""
FILE_TOKENS = 1024

_SOURCES = (
    "uuid",
    "url",
    "data",
    "file_data",
    "file_url",
    "file_id",
    "image_url",
    "audio_url",
    "video_url",
    "input_audio",
    "source",
    "file",
)
"""Fields with a medium's content or address. If a medium has a `uuid`, engines identify it by this id."""

_HEADER = 48
"""Number of base64 characters at the beginning that contain the size of a PNG, GIF, WebP or BMP picture, or the rate of
a WAV file.
"""
_JPEG_HEADER = 65_536
"""Number of base64 characters of a JPEG that are searched for its size, which follows its metadata."""


def medium(part: Mapping[str, Any], most_bytes: int = MOST_AUDIO_TOKENS * BYTES_PER_TOKEN) -> tuple[str, bytes]:
    """Return the modality (image, audio, video or file) of a content part, and the bytes that represent the medium: its
    hash, repeated up to `most_bytes`, but at least once.
    """
    kind = str(part.get("type") or next(iter(part), ""))
    modality = next((word for word in ("image", "audio", "video") if word in kind), "file")
    source = _source(part)
    data = source[source.find(";base64,", 0, 200) + 8 :] if source.startswith("data:") else source
    length = _tokens(modality, data) * BYTES_PER_TOKEN
    digest = xxh3_128_hexdigest(data.encode())
    length = max(min(length, most_bytes), len(digest))
    return modality, (digest * (length // len(digest) + 1))[:length].encode()


def _source(part: object) -> str:
    value = part
    while isinstance(value, dict):
        field = next((field for field in _SOURCES if value.get(field)), None)
        if field is None:
            break
        value = value[field]
    return value if isinstance(value, str) else canonical_json(part).decode()


def _tokens(modality: str, data: str) -> int:
    if modality == "image":
        size = picture_size(data)
        if size is None:
            return IMAGE_TOKENS
        return min(max(size[0] * size[1] // PIXELS_PER_TOKEN, FEWEST_IMAGE_TOKENS), MOST_IMAGE_TOKENS)
    if modality == "audio":
        return min(max(int(_seconds(data) * AUDIO_TOKENS_PER_SECOND), AUDIO_TOKENS_PER_SECOND), MOST_AUDIO_TOKENS)
    return VIDEO_TOKENS if modality == "video" else FILE_TOKENS


def _decoded(data: str, letters: int) -> bytes:
    """Return the decoded beginning of base64 data, from this number of characters; b"" if the data are not base64."""
    try:
        return b64decode(data[: letters - letters % 4] if len(data) > letters else data)
    except ValueError:
        return b""


def picture_size(data: str) -> tuple[int, int] | None:
    """Return width and height in pixels, from the header of a picture in base64; None if they are not found."""
    head = _decoded(data, _HEADER)
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return _pair(head[16:24], 4, "big")
    if head[:3] == b"GIF":
        return _pair(head[6:10], 2, "little")
    if head[:2] == b"BM":
        return _pair(head[18:26], 4, "little")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp_size(head)
    return _jpeg_size(_decoded(data, _JPEG_HEADER)) if head[:2] == b"\xff\xd8" else None


def _pair(two: bytes, length: int, order: Any) -> tuple[int, int] | None:
    if len(two) < 2 * length:
        return None
    return int.from_bytes(two[:length], order), int.from_bytes(two[length:], order)


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Return the size of a lossy, lossless or extended WebP file
    (https://developers.google.com/speed/webp/docs/riff_container).
    """
    kind = head[12:16]
    if kind == b"VP8X":
        size = _pair(head[24:30], 3, "little")
        return None if size is None else (size[0] + 1, size[1] + 1)
    if kind == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    size = _pair(head[26:30], 2, "little") if kind == b"VP8 " else None
    return None if size is None else (size[0] & 0x3FFF, size[1] & 0x3FFF)


_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
"""The segments of a JPEG that begin a frame (ITU T.81, table B.1), which have precision, height and width."""


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 1 if head[at + 1] == 0xFF else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _seconds(data: str) -> float:
    """Return the estimated duration of a sound in seconds, from its size; 60 for a sound that the engine fetches."""
    if data[:8].lower().startswith(("http://", "https://", "file://")):
        return 60.0
    head = _decoded(data, _HEADER)
    rate = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else 0
    return len(data) * 3 / 4 / (rate or AUDIO_BYTES_PER_SECOND)
