"""Images, sounds, videos and files in a prompt: the identity of each medium, and an estimate of its number of tokens.

In the canonical prompt, the hash of a medium stands for the medium. The hash is repeated until it has as many bytes as
a text with the medium's tokens. So two prompts have the same bytes only if their media are the same, the text after a
medium is at about the right position, and the number of bytes measures the whole prompt. Engines' reports of such
prompts correct the estimate, as for every other kind of prompt (`fairlead.routing.knowledge.token_sizes`).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_128_hexdigest

from fairlead_router.protocols.canonical_json import canonical_json

BYTES_PER_TOKEN = 4

IMAGE_TOKENS = 1024
"""Estimated number of tokens of an image of unknown size, for example an image that the engine fetches from a URL."""
PIXELS_PER_TOKEN = 28 * 28
"""Number of pixels of an image for each token. In Qwen's vision models a token stands for this number of pixels (four
patches of 14 x 14), in Pixtral and InternVL for 256 to 784, in Claude for 750.
"""
FEWEST_IMAGE_TOKENS, MOST_IMAGE_TOKENS = 64, 16_384
"""Minimum and maximum number of tokens of an image. Qwen's processor scales images to these bounds; other models stay
within them.
"""

AUDIO_TOKENS_PER_SECOND = 25
"""Number of tokens for each second of sound in Qwen's audio models; other models have between 6 and 50."""
AUDIO_BYTES_PER_SECOND = 16_000
"""Number of bytes for each second of compressed sound, at 128 kbit/s. For a WAV file, the rate in its header is used.
"""
MOST_AUDIO_TOKENS = 16_384

VIDEO_TOKENS = 4096
"""Estimated number of tokens of a video: vLLM samples 32 frames, and two frames have 256 tokens."""
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
"""Fields with a medium's content, address or id. If a medium has a `uuid`, engines identify it by this id."""

_HEADER = 48
"""Number of base64 characters at the beginning that contain the size of a PNG, GIF, WebP or BMP picture, or the byte
rate of a WAV file.
"""
_JPEG_HEADER = 65_536
"""Number of base64 characters of a JPEG in which its size is searched; the size comes after the metadata."""


def medium(part: Mapping[str, Any], most_bytes: int = MOST_AUDIO_TOKENS * BYTES_PER_TOKEN) -> tuple[str, bytes]:
    """Return the modality (image, audio, video or file) of a content part, and the bytes that stand for the medium in
    the prompt: its hash, repeated up to `most_bytes`, but at least once.
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
    """Return the decoded beginning of base64 data. `letters`: the number of characters to decode. b"" if the data are
    not base64.
    """
    try:
        return b64decode(data[: letters - letters % 4] if len(data) > letters else data)
    except ValueError:
        return b""


def picture_size(data: str) -> tuple[int, int] | None:
    """Return the width and height in pixels, from the header of a base64 picture; None if they are not there."""
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
    """Return the width and height of a lossy, lossless or extended WebP picture; None if the header is too short
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
"""Markers of the JPEG segments that begin a frame and have its precision, height and width (ITU T.81, table B.1)."""


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 1 if head[at + 1] == 0xFF else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _seconds(data: str) -> float:
    """Return the duration of a sound in seconds, estimated from its size; 60 for a sound that the engine fetches from a
    URL.
    """
    if data[:8].lower().startswith(("http://", "https://", "file://")):
        return 60.0
    head = _decoded(data, _HEADER)
    rate = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else 0
    return len(data) * 3 / 4 / (rate or AUDIO_BYTES_PER_SECOND)
