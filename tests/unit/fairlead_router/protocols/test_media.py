"""The canonical prompt's stand-ins for images, sounds, videos and files."""

import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.media import (
    BYTES_PER_TOKEN,
    FEWEST_IMAGE_TOKENS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    MOST_IMAGE_TOKENS,
    medium,
    picture_size,
)


def text(data: bytes) -> str:
    return b64encode(data).decode()


def png(width: int, height: int, rest: bytes = b"") -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + rest


def jpeg(width: int, height: int, metadata: int) -> bytes:
    return (
        b"\xff\xd8\xff\xe1"
        + struct.pack(">H", metadata + 2)
        + b"\xff\xc0" * (metadata // 2)
        + b"\xff\xff"
        + b"\xff\xc2"
        + struct.pack(">HBHH", 17, 8, height, width)
        + bytes(60)
    )


PICTURES = {
    "png": png(1568, 784, bytes(20)),
    "gif": b"GIF89a" + struct.pack("<HH", 1568, 784) + bytes(30),
    "bmp": b"BM" + bytes(16) + struct.pack("<II", 1568, 784) + bytes(20),
    "jpeg": jpeg(1568, 784, 0),
    "jpeg behind metadata": jpeg(1568, 784, 40_000),
    "webp": b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 1568, 784) + bytes(20),
    "webp, lossless": b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 1567 | 783 << 14) + bytes(20),
    "webp, extended": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + struct.pack("<I", 1567)[:3] + struct.pack("<I", 783)[:3] + bytes(20),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_counts_by_its_size_in_pixels(name: str) -> None:
    data = text(PICTURES[name])
    assert picture_size(data) == (1568, 784)
    modality, stand_in = medium({"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}})
    assert (modality, len(stand_in)) == ("image", 1568 * BYTES_PER_TOKEN)


def test_tiny_and_huge_pictures_count_within_what_engines_scale_them_to() -> None:
    sizes = [
        len(medium({"type": "input_image", "image_url": "data:image/png;base64," + text(png(*size))})[1])
        for size in ((1, 1), (99999, 9999))
    ]
    assert sizes == [FEWEST_IMAGE_TOKENS * BYTES_PER_TOKEN, MOST_IMAGE_TOKENS * BYTES_PER_TOKEN]


def test_a_sound_counts_by_its_length() -> None:
    wave = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHII", 16, 1, 1, 16_000, 32_000) + bytes(320_000 - 36)
    _, stand_in = medium({"type": "input_audio", "input_audio": {"data": text(wave), "format": "wav"}})
    assert len(stand_in) == pytest.approx(10 * 25 * BYTES_PER_TOKEN, rel=0.01)
    _, compressed = medium({"type": "input_audio", "input_audio": {"data": text(bytes(160_000)), "format": "mp3"}})
    assert len(compressed) == pytest.approx(10 * 25 * BYTES_PER_TOKEN, rel=0.01)


def test_a_medium_is_known_by_its_content_in_whatever_part_it_comes() -> None:
    data = text(png(300, 300))
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data, "detail": "high"}},
        {"type": "input_image", "image_url": "data:image/jpeg;base64," + data, "detail": "auto"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": data}},
        {"image_url": "data:image/png;base64," + data, "cache_control": {"type": "ephemeral"}},
    ]
    assert len({medium(part) for part in parts}) == 1
    other = medium({"type": "image_url", "image_url": {"url": "data:image/png;base64," + text(png(300, 300, b"x"))}})
    assert other != medium(parts[0])
    assert len({medium({**part, "uuid": "u-1"}) for part in (parts[0], {"type": "image_url", "image_url": None})}) == 1


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, IMAGE_TOKENS),
        ({"type": "audio_url", "audio_url": {"url": "https://a/b.mp3"}}, 60 * 25),
        ({"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}, 4096),
        ({"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "x"}}, FILE_TOKENS),
        ({"type": "image_embeds", "image_embeds": {"a": [1]}}, IMAGE_TOKENS),
    ],
)
def test_what_says_nothing_of_its_size_counts_as_a_usual_one(part: dict[str, Any], tokens: int) -> None:
    assert len(medium(part)[1]) == tokens * BYTES_PER_TOKEN


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8L"]),
)
def test_whatever_data_a_medium_has_it_stands_for_something(data: bytes, head: bytes) -> None:
    for kind in ("image_url", "input_audio", "video_url", "file", "unheard_of"):
        for given_data in (text(head + data), data.decode("latin-1"), "data:x;base64," + text(head + data)):
            assert medium({"type": kind, kind: {"url": given_data}})[1]
