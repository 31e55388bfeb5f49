"""Sixty instances and ten thousand sessions: every page keeps to its limits of elements and bytes."""

import gzip
import re

import pytest

from fairlead_testing.fakes.public_data import sessions
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_testing.running.web_client import visitor

NAMES = [f"chat-b{number:05}" for number in range(60)]
MOST_ELEMENTS, MOST_BYTES = 2_500, 20_000
"""The most elements of a page, and the most bytes of its HTML as it is sent.

A first visit also loads the style sheet and the scripts (docs/measurements.md).
"""
ELSEWHERE = {"/docs", "/clusters"}
"""Pages tested elsewhere: the explorer has a limit of its own, and the page of clusters exists only with clusters."""


async def test_the_pages_of_sixty_instances_and_ten_thousand_sessions_keep_their_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INSTANCES, CHAT, NAMES)
    monkeypatch.setattr(sessions, "SESSIONS", 10_000)
    async with visitor("admin") as admin:
        admin.fake.world.desired[CHAT] = 60
        furnish(admin.fake, CHAT, NAMES[1])
        pages = {path: await admin.http.get(path) for path in addresses(CHAT, NAMES[1]) if path not in ELSEWHERE}
    assert {path: one.status_code for path, one in pages.items() if one.status_code != 200} == {}
    elements = {path: len(re.findall("<[a-z]", one.text)) for path, one in pages.items()}
    weights = {path: len(gzip.compress(one.content, 6)) for path, one in pages.items()}
    assert {path: count for path, count in elements.items() if count > MOST_ELEMENTS} == {}
    assert {path: weight for path, weight in weights.items() if weight > MOST_BYTES} == {}
    assert "10,000" in re.sub(r"\s+", " ", pages["/sessions"].text) or "7,500" in pages["/pools/default/chat/sessions"].text
