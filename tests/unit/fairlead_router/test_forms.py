"""Finding the model in a form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.forms import FormPrefix
from fairlead_router.refusals import BadRequest

TYPE = "multipart/form-data; boundary=XyZ"


def _part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--XyZ\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


FILE = _part("file", b'RIFF\r\n\r\n\r\nname="model"\r\n\r\nnot-this\r\n--Xy', '; filename="name=model"\r\nContent-Type: audio/wav')
FORM = _part("language", b"en") + FILE + _part("model", b"whisper") + b"--XyZ--\r\n"


@given(st.lists(st.integers(1, len(FORM)), max_size=8))
def test_the_model_is_found_however_the_form_is_cut(cuts: list[int]) -> None:
    form = FormPrefix(TYPE)
    start = 0
    for end in (*sorted(cuts), len(FORM)):
        form.feed(FORM[start:end])
        start = end
    assert form.model == "whisper"
    assert form.taken("whisper") == FORM
    assert form.taken("large") == FORM.replace(b"whisper", b"large")


def test_a_model_before_the_file_is_known_before_the_file_has_come() -> None:
    form = FormPrefix('Multipart/Form-Data; charset=utf-8; boundary="XyZ"')
    form.feed(_part("model", b"whisper") + b"--XyZ\r\nContent-Disposition: form-data; na")
    assert form.model == "whisper"


def test_a_form_without_the_field_has_no_model() -> None:
    form = FormPrefix(TYPE)
    form.feed(FILE + _part("modelling", b"x") + b"--XyZ--\r\n")
    assert form.model is None


@pytest.mark.parametrize("content_type", [None, "application/json", "multipart/form-data", "multipart/form-data; boundary="])
def test_what_is_no_form_is_a_400(content_type: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        FormPrefix(content_type)
    assert caught.value.code == "invalid_content_type"
