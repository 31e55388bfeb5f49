"""The model's name is found in a form."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.serving.forms import PassingForm
from fairlead_testing.examples import examples

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
    """Pass on a form that arrives in pieces."""
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


@pytest.mark.parametrize(
    "written",
    [
        "boundary=------------------------d74496d66958873e",  # curl
        "boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
        "boundary=----formdata-undici-012345678901",
        "boundary=5f3b7c0de9a84c1d8f0e6a2b4c7d9e1f",  # requests, httpx, Go
        'boundary="===============7330845974216740156=="',  # Python's email
        'boundary="7c3e0f4a-1b7d-4a3e-9d51-2f8f6f1c9a10"',  # .NET
        "charset=ISO-8859-1; boundary=a_b-C",  # Apache HttpClient
    ],
)
@pytest.mark.parametrize("form", ["multipart/form-data; {}", "multipart/form-data;{};charset=UTF-8"])
def test_the_content_types_of_known_clients_are_read(form: str, written: str) -> None:
    PassingForm(form.format(written))


def _of(boundary: str, *parts: tuple[str, str]) -> bytes:
    """Return a form with a part for each pair of a disposition and a content."""
    written = "".join(f"--{boundary}\r\nContent-Disposition: form-data; {named}\r\n\r\n{value}\r\n" for named, value in parts)
    return f"{written}--{boundary}--\r\n".encode()


FAKE = '\r\n--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nopen\r\n--B--'
HIDDEN = (('name="prompt"', FAKE), ('name="model"', "secret"))
END = '--A--\r\n--A\r\nContent-Disposition: form-data; name="model"\r\n\r\nsecret'


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("multipart/form-data; boundary=B; boundary =A", _of("A", *HIDDEN)),
        ('multipart/form-data; boundary=A; x="; boundary=B"', _of("A", *HIDDEN).replace(b"--B", b'--B"')),
        ("multipart/form-data; boundary=A; boundary=B", _of("B", *HIDDEN)),
        ("multipart/form-data; boundary=A; boundary*=utf-8''B", _of("B", *HIDDEN)),
        ("multipart/form-data; boundary=<A>", _of("A", *HIDDEN)),
        ("multipart/form-data; boundary=A", _of("A", ('name="model"', "open"), ('name="prompt"', END))),
        ("multipart/form-data; boundary=A", b"preamble\r\n" + _of("A", ('name="model"', "secret"))),
        ("multipart/form-data; boundary=A", _of("A", ('name="model"', "open\r\n--A-"))),
        ("multipart/form-data; boundary=A", _of("A", ('name*0="mo"; name*1="del"', "secret"))),
        ("multipart/form-data; boundary=A", _of("A", ('name="model"', "open"), ('x="\n"; name="model"', "secret"))),
        ("multipart/form-data; boundary=A", _of("A", ('x="\r"; name="model"', "secret"))),
        ("multipart/form-data; charset=utf-7; boundary=A", _of("A", ('name="model"', "open"), ('name="+AG0-odel"', "secret"))),
        ("multipart/form-data; boundary=A; Charset=unicode_escape", _of("A", ('name="\\x6dodel"', "secret"))),
    ],
)
def test_a_form_that_parsers_read_differently_is_refused(content_type: str, form: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        PassingForm(content_type).feed(form)
    assert caught.value.code in {"invalid_form", "invalid_content_type"}


def test_a_boundary_that_ends_like_a_form_does_not_end_one_that_begins_with_an_empty_line() -> None:
    form = PassingForm("multipart/form-data; boundary=A--")
    form.feed(b"\r\n" + _of("A--", ('name="model"', "secret")))
    assert form.model == "secret"


def _read_by_an_engine(content_type: str, body: bytes) -> list[str] | None:
    """Return the models that Starlette's parser, which vLLM and SGLang use, finds in the form; None if it refuses the
    form.
    """

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield body

    async def parsed() -> list[str]:
        form = await MultiPartParser(Headers({"content-type": content_type}), pieces()).parse()
        return [value for value in form.getlist("model") if isinstance(value, str)]

    try:
        return asyncio.run(parsed())
    except (MultiPartException, KeyError):
        return None


NAMED = ('name="model"', 'name="a"', "name = model", 'filename="x"; name="model"', 'NAME="model"')
ODDLY = (
    'x="\n"; name="model"',
    'name="+AG0-odel"',
    'x="\\"; name="model"',
    'name="model"; name="a"',
    'name*0="mo"; name*1="del"',
    'name="mo\\del"',
    "name=<model>",
    '"; name="model"',
)
PIECES = ("--A", "--A--", "--A-", "--B", "--B--", "\r\n", "\r\n\r\n", "\n", "--", "x: y", "secret")
PARTS = st.builds(
    lambda boundary, named, value: f"--{boundary}\r\nContent-Disposition: form-data; {named}\r\n\r\n{value}\r\n",
    st.sampled_from(["A", "A", "A", "A--"]),
    st.sampled_from((*NAMED, *NAMED, *ODDLY)),
    st.sampled_from(["open", "secret", "", *PIECES]),
)
TYPES = (
    "boundary=A",
    "boundary=A",
    'boundary="A"',
    "boundary=A--",
    "boundary=A; boundary=B",
    "boundary=B; boundary =A",
    "charset=utf-8; boundary=A;",
    "charset=utf-7; boundary=A",
)


@examples(500)
@given(
    st.sampled_from(TYPES),
    st.sampled_from(["", "\r\n", "\n", "\r\n\r\n"]),
    st.lists(PARTS | PARTS | st.sampled_from(PIECES), max_size=4),
    st.sampled_from(["--A--\r\n", "--A----\r\n", ""]),
)
def test_the_gateway_knows_the_model_that_an_engine_finds_in_a_form(told: str, lead: str, parts: list[str], end: str) -> None:
    content_type, body = f"multipart/form-data; {told}", "".join((lead, *parts, end)).encode()
    try:
        form = PassingForm(content_type)
        form.feed(body)
    except BadRequest:
        return
    found = _read_by_an_engine(content_type, body)
    assert found is None or [one.strip() for one in found] in ([], [form.model])
