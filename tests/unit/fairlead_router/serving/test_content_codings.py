"""Compressed bodies, wherever they are cut and whatever they hold."""

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.serving.bodies import limited
from fairlead_router.serving.client_requests import BodyTooLarge
from fairlead_router.serving.content_codings import ContentDecoder, codings_of
from fairlead_testing.steps import LINE, work_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def _raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate (raw)": _raw,
    "zstd": zstd.compress,
}
EMPTY_MEMBERS = {"gzip": gzip.compress(b""), "zstd": zstd.compress(b""), "zstd (skipped)": bytes.fromhex("502a4d18 00000000")}
"""The smallest members that may follow each other, by coding."""


def _zstd_frame(window_log: int, block: bytes = b"hello", *, dictionary: bytes = b"") -> bytes:
    """Return a frame of one uncompressed block (RFC 8878, section 3.1.1) that declares the window it needs."""
    head = bytes([len(dictionary) and 1, (window_log - 10) << 3]) + dictionary
    return bytes.fromhex("28b52ffd") + head + (len(block) << 3 | 1).to_bytes(3, "little") + block


def _decoded(name: str, body: bytes) -> bytes:
    decoder = ContentDecoder([name])
    pieces = list(decoder.feed(body))
    decoder.end()
    return b"".join(pieces)


BODIES = st.binary(max_size=300) | st.builds(bytes.__mul__, st.binary(min_size=1, max_size=3), st.integers(1, 200_000))


@given(BODIES, st.lists(st.sampled_from(sorted(ENCODERS)), min_size=1, max_size=3), st.lists(st.integers(0, 400), max_size=5))
def test_a_body_is_what_it_was_however_it_is_encoded_and_cut(body: bytes, codings: list[str], cuts: list[int]) -> None:
    encoded = body
    for name in codings:
        encoded = ENCODERS[name](encoded)
    decoder = ContentDecoder([name.partition(" ")[0] for name in codings])
    ends = [*sorted(cuts), len(encoded)]
    pieces = [piece for start, end in zip([0, *ends], ends, strict=False) for piece in decoder.feed(encoded[start:end])]
    decoder.end()
    assert b"".join(pieces) == body


@given(st.binary(min_size=1, max_size=500), st.integers(1, 20), st.sampled_from(sorted(ENCODERS)))
def test_a_body_that_is_cut_short_is_told_so(body: bytes, missing: int, name: str) -> None:
    encoded = ENCODERS[name](body)
    with pytest.raises(BadRequest) as caught:
        _decoded(name.partition(" ")[0], encoded[: max(1, len(encoded) - missing)])
    assert (caught.value.status, caught.value.code) == (400, "invalid_content_encoding")


@given(st.binary(min_size=2, max_size=200), st.sampled_from(["gzip", "deflate", "zstd"]))
def test_bytes_that_are_not_of_the_coding_raise_nothing_else(body: bytes, name: str) -> None:
    with suppress(BadRequest):
        _decoded(name, body)


@pytest.mark.parametrize(
    "codings", [["gzip"], ["deflate"], ["zstd"], ["gzip", "gzip"], ["zstd", "zstd"], ["gzip", "zstd"], ["deflate", "gzip", "gzip"]]
)
def test_a_bomb_takes_no_more_memory_than_the_limit(codings: list[str]) -> None:
    encoded = bytes(40_000_000)
    for name in codings:
        encoded = ENCODERS[name](encoded)
    limit, kept = 1_000_000, list[bytes]()
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            kept.extend(limited(ContentDecoder(codings), encoded, limit))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.5 * limit


@pytest.mark.parametrize("codings", [["deflate", "gzip"], ["deflate", "zstd"], ["zstd", "zstd"], ["deflate", "zstd", "gzip"]])
def test_what_one_coding_inflates_and_the_next_decodes_to_nothing_counts_for_the_limit_too(codings: list[str]) -> None:
    nothing = zstd.compress(b"") if codings[0] == "zstd" else zlib.compress(b"")[:2] + b"\x00\x00\x00\xff\xff" * 1_000_000
    if codings[0] == "zstd":
        nothing = bytes.fromhex("502a4d18") + (5_000_000).to_bytes(4, "little") + bytes(5_000_000) + nothing
    encoded = nothing
    for name in codings[1:]:
        encoded = ENCODERS[name](encoded)
    assert len(encoded) < 50_000
    steps = list[bytes]()
    with pytest.raises(BodyTooLarge):
        steps.extend(limited(ContentDecoder(codings), encoded, 1_000_000))
    assert len(steps) >= 15, "others have their turns meanwhile"
    assert not any(steps)


@pytest.mark.parametrize("name", EMPTY_MEMBERS)
def test_members_one_after_the_other_are_one_body_and_thousands_hold_up_nobody(name: str) -> None:
    coding, nothing = name.partition(" ")[0], EMPTY_MEMBERS[name]
    encode = ENCODERS[coding]
    assert _decoded(coding, encode(b"a") + nothing + encode(b"b") + nothing) == b"ab"
    body = nothing * 100_000

    def refused() -> None:
        with pytest.raises(BadRequest):
            list(ContentDecoder([coding]).feed(body))

    assert work_of(refused) < 10_000 * LINE, "each member costs several lines"


def test_a_zstd_window_may_have_8_mib_and_no_more() -> None:
    assert _decoded("zstd", _zstd_frame(23)) == b"hello"
    for frame in (_zstd_frame(24), _zstd_frame(31), _zstd_frame(20, dictionary=b"\x07")):
        with pytest.raises(BadRequest) as caught:
            _decoded("zstd", frame)
        assert "dictionary, or a window of more than 8 MiB" in caught.value.message


@pytest.mark.parametrize(
    ("values", "codings"),
    [
        ([b"gzip"], ("gzip",)),
        ([b"GZIP, Deflate "], ("gzip", "deflate")),
        ([b"ZStd"], ("zstd",)),
        ([b"identity"], ()),
        ([b"deflate", b"identity, x-gzip"], ("deflate", "x-gzip")),
        ([b""], ()),
        ([], ()),
    ],
)
def test_codings_are_read_in_any_case_and_from_several_lines(values: list[bytes], codings: tuple[str, ...]) -> None:
    assert codings_of([(b"content-encoding", value) for value in values]) == codings


@pytest.mark.parametrize("value", [b"br", b"compress", b"zst", b"gzip, br", b"\xff", b"gzip, gzip, gzip, gzip"])
def test_other_codings_are_a_415_that_names_those_that_are_taken(value: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        ContentDecoder(codings_of([(b"content-encoding", value)]))
    assert caught.value.status == 415
    assert caught.value.message.endswith("send the body as it is, or encoded with one of: gzip, deflate, zstd, identity")
    assert caught.value.extra == [(b"accept-encoding", b"gzip, deflate, zstd, identity")]
