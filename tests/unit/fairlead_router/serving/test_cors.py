"""Which answers of the gateway a browser lets pages of other origins read."""

import re
from pathlib import Path

import pytest

import fairlead_router
from fairlead_router.protocols.refusals import BadRequest
from fairlead_router.serving.cors import Cors

PAGE = b"https://chat.example.com"


def test_without_a_setting_nothing_is_said_of_origins() -> None:
    assert not Cors(()).is_on
    assert Cors(()).headers([(b"origin", PAGE)]) == []
    assert Cors(()).preflight("OPTIONS", [(b"origin", PAGE), (b"access-control-request-method", b"POST")], ("POST",)) is None


def test_a_listed_origin_is_named_and_the_answer_varies_by_it() -> None:
    cors = Cors((PAGE.decode(), "http://localhost:3000"))
    told = dict(cors.headers([(b"origin", PAGE)]))
    assert told[b"access-control-allow-origin"] == PAGE
    assert told[b"vary"] == b"Origin"
    assert {b"x-request-id", b"retry-after", b"x-fairlead-rejection"} <= set(told[b"access-control-expose-headers"].split(b", "))
    assert cors.headers([(b"origin", b"https://other.example.com")]) == cors.headers([]) == [(b"vary", b"Origin")]


_SET = re.compile(r'[("](x-fairlead-[a-z-]+[a-z]|x-llm-d-request-dropped-reason)(?:"|: %)')
READ_ONLY = {"x-fairlead-explain", "x-fairlead-parent", "x-fairlead-task"}
"""Headers of the gateway that clients send."""


def test_a_page_can_read_every_header_that_the_router_sets() -> None:
    sources = (path.read_text(encoding="utf-8") for path in Path(fairlead_router.__file__).parent.rglob("*.py"))
    exposed = {name.decode() for name in dict(Cors(("*",)).headers([(b"origin", PAGE)]))[b"access-control-expose-headers"].split(b", ")}
    named = {name for source in sources for name in _SET.findall(source)}
    assert {"x-fairlead-pool", "x-fairlead-rank"} <= named
    assert named - READ_ONLY <= exposed


def test_every_origin_is_one_answer_for_all() -> None:
    told = dict(Cors(("*",)).headers([(b"origin", PAGE)]))
    assert told[b"access-control-allow-origin"] == b"*"
    assert b"vary" not in told
    assert b"access-control-allow-credentials" not in told


def test_a_preflight_is_allowed_the_methods_of_the_path_and_the_headers_it_asks_for() -> None:
    asked = [
        (b"origin", PAGE),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization,x-stainless-os"),
    ]
    answer = Cors(("*",)).preflight("OPTIONS", asked, ("POST",))
    assert answer is not None
    told = dict(answer.headers)
    assert (answer.status, answer.body) == (204, b"")
    assert told[b"access-control-allow-methods"] == b"POST"
    assert told[b"access-control-allow-headers"] == b"authorization,x-stainless-os"
    assert Cors(("*",)).preflight("POST", asked, ("POST",)) is None
    assert Cors(("*",)).preflight("OPTIONS", asked[:1], ("POST",)) is None


def test_a_preflight_of_another_origin_is_told_the_remedy() -> None:
    with pytest.raises(BadRequest, match="add it to FAIRLEAD_CORS_ORIGINS") as caught:
        Cors((PAGE.decode(),)).preflight("OPTIONS", [(b"origin", b"null"), (b"access-control-request-method", b"POST")], ("POST",))
    assert caught.value.status == 403
