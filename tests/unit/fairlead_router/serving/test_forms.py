"""Finding the model in a form."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.serving.forms import PassingForm

TYPE = "multipart/form-data; boundary=XyZ"


def _part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--XyZ\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


FILE = _part("file", b'RIFF\r\n\r\n\r\nname="model"\r\n\r\nnot-this\r\n--Xy', '; filename="name=model"\r\nContent-Type: audio/wav')
FORM = _part("language", b"en") + FILE + _part("model", b"whisper") + b"--XyZ--\r\n"


@given(st.lists(st.integers(1, len(FORM)), max_size=8))
def test_the_model_is_found_however_the_form_is_cut(cuts: list[int]) -> None:
    form = PassingForm(TYPE)
    start = 0
    for end in (*sorted(cuts), len(FORM)):
        form.feed(FORM[start:end])
        start = end
    assert form.model == "whisper"
    assert form.taken("whisper") == FORM
    assert form.taken("large") == FORM.replace(b"whisper", b"large")


def test_a_model_before_the_file_is_known_before_the_file_has_come() -> None:
    form = PassingForm('Multipart/Form-Data; charset=utf-8; boundary="XyZ"')
    form.feed(_part("model", b"whisper") + b"--XyZ\r\nContent-Disposition: form-data; na")
    assert form.model == "whisper"


def test_a_form_without_the_field_has_no_model() -> None:
    form = PassingForm(TYPE)
    form.feed(FILE + _part("modelling", b"x") + b"--XyZ--\r\n")
    assert form.model is None


SECOND = _part("model", b"whisper") + FILE + _part("model", b"other") + b"--XyZ--\r\n"
LONG = _part("model", b"whisper") + FILE + _part("prompt", b"") + b"--XyZ--\r\n" + b"an epilogue\r\n" * 2000
CUTS = st.lists(st.integers(1, len(SECOND)), max_size=8)


async def _pass_on(whole: bytes, cuts: list[int], passed: list[bytes]) -> None:
    """Passes on a form that comes cut into pieces."""
    ends = sorted({*cuts, len(whole)})
    pieces = iter([whole[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    form = PassingForm(TYPE)

    async def rest() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    while form.model is None:
        form.feed(next(pieces))
    passed.append(form.taken("whisper"))
    async for piece in form.checked(rest()):
        passed.append(piece)
        assert form.size <= len(piece) + len(FILE), "no more is held than a part's headers and a piece"


@given(CUTS)
async def test_a_second_model_is_refused_however_the_form_is_cut_and_before_it_is_passed_on(cuts: list[int]) -> None:
    passed: list[bytes] = []
    with pytest.raises(BadRequest, match="twice"):
        await _pass_on(SECOND, cuts, passed)
    assert SECOND.startswith(b"".join(passed))
    assert b"other" not in b"".join(passed)


PEER = _part("model", b"whisper") + FILE + _part("ec_transfer_params", b"{}") + b"--XyZ--\r\n"


@given(CUTS)
async def test_a_field_that_points_an_engine_at_a_peer_is_refused_before_it_is_passed_on(cuts: list[int]) -> None:
    passed: list[bytes] = []
    with pytest.raises(BadRequest, match="ec_transfer_params: only the gateway"):
        await _pass_on(PEER, cuts, passed)
    assert b"{}" not in b"".join(passed)


@given(CUTS)
async def test_the_rest_of_a_form_is_passed_on_as_it_came(cuts: list[int]) -> None:
    passed: list[bytes] = []
    await _pass_on(LONG, cuts, passed)
    assert b"".join(passed) == LONG


@pytest.mark.parametrize(
    ("disposition", "model"),
    [
        ('form-data; name="file"; filename="a; name=model"', None),
        ('form-data; name="model"; filename="a; name=x"', "whisper"),
        ("form-data; NAME=model", "whisper"),
        ('form-data; name="mo\\del"', "whisper"),
        ('form-data; name="x"; name="model"', "whisper"),
    ],
)
def test_a_fields_name_is_read_as_any_engine_may_read_it(disposition: str, model: str | None) -> None:
    form = PassingForm(TYPE)
    form.feed(b"--XyZ\r\nContent-Disposition: %s\r\n\r\nwhisper\r\n--XyZ--" % disposition.encode())
    assert form.model == model


@pytest.mark.parametrize("part", [b"Content-Disposition: form-data; name*=utf-8''model\r\n\r\nx", b"a" * 17_000])
def test_headers_that_cannot_be_read_are_a_400(part: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        PassingForm(TYPE).feed(b"--XyZ\r\n" + part)
    assert caught.value.code == "invalid_form"


@pytest.mark.parametrize("content_type", [None, "application/json", "multipart/form-data", "multipart/form-data; boundary="])
def test_what_is_no_form_is_a_400(content_type: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        PassingForm(content_type)
    assert caught.value.code == "invalid_content_type"
