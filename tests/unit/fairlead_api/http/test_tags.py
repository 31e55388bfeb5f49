"""Entity tags: equal content has an equal tag, and a change is accepted only for content that has not changed."""

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead_api.http.tags import Tagging, matches, require_unchanged, tag_of
from fairlead_api.infra.errors import Changed

PRESENT = {"a": 1}
TAG = tag_of(msgspec.json.encode(PRESENT))


@pytest.mark.parametrize("given", [None, "*", TAG, f'"other", {TAG}'])
def test_a_change_may_build_on_the_present_state(given: str | None) -> None:
    require_unchanged(given, "plan p", PRESENT)


@pytest.mark.parametrize("given", ['"other"', f"W/{TAG}", '""'])
def test_a_change_of_another_state_is_refused_with_the_present_tag(given: str) -> None:
    with pytest.raises(Changed, match="plan p changed since it was read") as caught:
        require_unchanged(given, "plan p", PRESENT)
    assert caught.value.tag == TAG


def test_what_is_no_tag_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="if-match"):
        require_unchanged(TAG.strip('"'), "plan p", PRESENT)


def test_none_match_compares_weakly() -> None:
    assert all(matches(given, TAG) for given in ("*", TAG, f"W/{TAG}", f'"x", W/{TAG}'))
    assert not matches('"x"', TAG)


async def test_what_is_known_already_is_not_sent_again() -> None:
    async def page(request: Request) -> Response:
        return Response(msgspec.json.encode(PRESENT), media_type="application/json")

    async def text(request: Request) -> Response:
        return Response("a,b", media_type="text/csv")

    app = Tagging(Starlette(routes=[Route("/v1/page", page), Route("/v1/text", text)]))
    async with httpx.AsyncClient(base_url="http://api.test", transport=httpx.ASGITransport(app)) as http:
        first = await http.get("/v1/page")
        assert (first.status_code, first.headers["etag"], first.headers["cache-control"]) == (200, TAG, "private, no-cache")
        again = await http.get("/v1/page", headers={"if-none-match": f'"old", {TAG}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", TAG)
        assert (await http.get("/v1/page", headers={"if-none-match": '"old"'})).json() == PRESENT
        assert "etag" not in (await http.get("/v1/text")).headers
