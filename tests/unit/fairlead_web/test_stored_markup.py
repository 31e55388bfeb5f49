"""Reasons and messages that hold markup reach every page as text and create no element or attribute."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.web_client import COOKIE, NOW, ORIGIN
from fairlead_web.app import create_web_app

MARKUP = "\"'><x-probe x-hit=1 onfocus=x()>&lt;x-probe&gt;{{7*'7'}}</script></title></textarea><x-probe>"
WRITTEN = {
    "reason", "message", "title", "words", "note", "subject", "actor", "changed_by", "remedy", "detail", "error", "request", "description",
    "client", "tenant", "comment", "created_by", "revoked_by", "applied_by", "planned_by", "effect", "summary", "label", "display_name",
    "explanation", "cause", "text", "problem", "host", "address", "user_agent", "made_by", "requested_by", "by", "author", "about",
}  # fmt: skip
"""Members of answers that people, clients, engines or the cluster write."""


def _pages() -> tuple[str, ...]:
    spec = spec_from_file_location("pages", Path(__file__).with_name("test_pages.py"))
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return tuple(found.PAGES)


@dataclass
class Marking(httpx.AsyncBaseTransport):
    """An app that writes markup into the answers of the API behind it."""

    api: httpx.AsyncBaseTransport
    written: set[str] = field(default_factory=set)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.api.handle_async_request(request)
        if not answer.headers.get("content-type", "").startswith("application/json"):
            return answer
        content = json.dumps(self._marked(json.loads(await answer.aread()))).encode()
        kept = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return httpx.Response(answer.status_code, headers=kept, content=content)

    def _marked(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._marked(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self._marked(one, name) for one in value]
        if not isinstance(value, str) or name not in WRITTEN or _is_word(value):
            return value
        self.written.add(name)
        return value + MARKUP


def _is_word(value: str) -> bool:
    """Return whether the text may be a word of an enum, which pages read."""
    return (
        bool(value) and value.replace("-", "").replace("_", "").isalnum() and (value.islower() or value[0].isupper()) and " " not in value
    )


class Found(HTMLParser):
    """Elements and attributes that the markup created, and addresses that run scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "x-probe" or "x-hit" in names or "onfocus" in names:
            self.made.append(f"<{tag} {attrs}>")
        self.made += [
            f"{name}={value}" for name, value in attrs if name in {"href", "src", "action", "hx-get"} and runs_script(value or "")
        ]


def runs_script(address: str) -> bool:
    return address.strip().lower().partition(":")[0] in {"javascript", "data", "vbscript"}


def made_of(html: str) -> list[str]:
    found = Found()
    found.feed(html)
    return found.made


@pytest.fixture
def marking() -> Marking:
    return Marking(httpx.ASGITransport(FakePublicApi(World(now=NOW), clock=lambda: NOW).app))


@pytest.mark.parametrize(
    "html", [f'<a title="{MARKUP}">', f"<p>{MARKUP}</p>", f"<script>const a = '{MARKUP}';</script>", '<a href="JavaScript:x()">']
)
def test_markup_that_is_not_escaped_is_found(html: str) -> None:
    assert made_of(html)


@pytest.mark.parametrize("path", _pages())
async def test_a_page_shows_markup_as_text(path: str, marking: Marking) -> None:
    app = create_web_app(marking, "http://api", ORIGIN, None, clock=lambda: NOW)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN, cookies={COOKIE: "admin-token"}) as http:
        answer = await http.get(path)
    assert answer.status_code == 200, answer.text[:300]
    assert made_of(answer.text) == []
    assert "7777777" not in answer.text


async def test_the_markup_reaches_the_pages_at_all(marking: Marking) -> None:
    app = create_web_app(marking, "http://api", ORIGIN, None, clock=lambda: NOW)
    shown = 0
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN, cookies={COOKIE: "admin-token"}) as http:
        for path in ("/audit", "/audit/56", "/pools/default/chat", "/advice", "/keys"):
            shown += "&lt;x-probe x-hit=1" in (await http.get(path)).text
    assert shown >= 3, marking.written
