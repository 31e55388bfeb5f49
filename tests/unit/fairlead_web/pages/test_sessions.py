"""A session's page."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from fairlead.reports.bindings import BindingReason
from fairlead_client.resources.sessions import BindingHistoryItem, SessionSummary
from fairlead_testing.examples import examples
from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE
from fairlead_testing.fakes.public_data.sessions import sessions
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.pages.sessions import FORMS, homes_within, session_of_address
from fairlead_web.text.addresses import session_path, tree_path
from fairlead_web.text.time_ranges import parse_range

SHARED = "Several conversations use this name"


async def test_the_page_of_a_name_that_several_conversations_use_says_so_and_other_pages_do_not() -> None:
    async with visitor() as visit:
        (shared,) = [one for one in sessions(NOW) if one.shared_at is not None]
        page = (await visit.http.get(session_path(shared.pool, shared.session))).text
        assert SHARED in page
        assert "nobody" in page
        assert SHARED not in (await visit.http.get(session_path(CHAT, HOSTILE))).text


@given(st.lists(st.sampled_from(["x", "plans", "kept-decisions", "", "ü ?"]), min_size=1, max_size=4).map("/".join), st.sampled_from(FORMS))
@examples(50)
def test_a_session_is_found_by_its_links_whatever_its_name_ends_with(session: str, form: str) -> None:
    def named(address: str, path: str) -> str:
        return session_of_address(Request({"type": "http", "path_params": {"session": path}, "raw_path": address.encode()}))

    address = session_path(CHAT, session)
    assert named(address, session) == session
    assert named(f"{address}/{form}", f"{session}/{form}") == session, "a refused form's page is loaded again"


async def test_a_page_of_a_session_whose_name_ends_as_a_forms_address_is_not_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("operator") as operator:
        one, other, *rest = sorted(sessions(NOW), key=lambda found: found.pool != CHAT)
        renamed = [replace(one, session="x/plans"), replace(other, session="x"), *rest]
        monkeypatch.setattr(type(operator.fake.world), "sessions", lambda _: renamed)
        for name in ("x/plans", "x"):
            page = (await operator.http.get(session_path(CHAT, name))).text
            assert f"<title>Session {name} " in page
            assert f'action="{session_path(CHAT, name)}/plans"' in page


async def test_a_decision_that_went_by_another_session_than_its_client_named_says_so() -> None:
    async with visitor() as visit:
        page = (await visit.http.get("/decisions/d-0004")).text
        assert "several conversations share that name" in page
        assert "default_user_id" in page
        assert "share that name" not in (await visit.http.get("/decisions/d-0003")).text


def of_keys(found: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return the sessions; the first ones of the pool chat belong to two keys with one name, and to one key alone."""
    one, two, three, *rest = sorted(found, key=lambda each: each.pool != CHAT)
    named = {"chat-1@1f2e3d4c5b6a7988": "team a", "chat-1@8897a6b5c4d3e2f1": "8897a6b5c4d3e2f1", "alone@1f2e3d4c5b6a7988": "team <b>"}
    changed = [replace(each, session=name, key=key) for each, (name, key) in zip((one, two, three), named.items(), strict=True)]
    return [*changed, *rest]


async def test_a_session_of_a_key_is_shown_with_the_name_of_its_key_and_addressed_by_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as visit:
        monkeypatch.setattr(type(visit.fake.world), "sessions", lambda _: of_keys(sessions(NOW)))
        listed = (await visit.http.get("/sessions?q=chat-1")).text
        path = session_path(CHAT, "chat-1@1f2e3d4c5b6a7988")
        assert re.search(rf'href="{path}"[^>]*>chat-1</a>\s*<span class="muted">team a</span>', listed)
        assert '<span class="muted">8897a6b5c4d3e2f1</span>' in listed
        page = (await visit.http.get(session_path(CHAT, "alone@1f2e3d4c5b6a7988"))).text
        assert "of the key team &lt;b&gt;" in page
        assert "of the key" not in (await visit.http.get(session_path(CHAT, of_keys(sessions(NOW))[3].session))).text


async def test_the_name_that_a_client_sends_leads_to_the_session_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as visit:
        monkeypatch.setattr(type(visit.fake.world), "sessions", lambda _: of_keys(sessions(NOW)))
        answer = await visit.http.get(f"{session_path(CHAT, 'alone')}?from=now-6h&to=now")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{session_path(CHAT, 'alone@1f2e3d4c5b6a7988')}?from=now-6h&to=now"
        assert (await visit.http.get(answer.headers["location"])).status_code == 200


@pytest.mark.parametrize("address", [session_path, tree_path])
async def test_a_name_of_several_keys_leads_to_the_sessions_of_each(
    address: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visitor() as visit:
        monkeypatch.setattr(type(visit.fake.world), "sessions", lambda _: of_keys(sessions(NOW)))
        answer = await visit.http.get(address(CHAT, "chat-1"))
        assert answer.status_code == 409
        for identity, key in (("chat-1@1f2e3d4c5b6a7988", "team a"), ("chat-1@8897a6b5c4d3e2f1", "8897a6b5c4d3e2f1")):
            assert f'<a class="mono" href="{address(CHAT, identity)}">{identity}</a> of the key {key}' in answer.text
        assert "Choose the session that you mean." in answer.text
        assert "Try again" not in answer.text


async def test_all_of_a_sessions_page_is_of_one_range() -> None:
    async with visitor() as visit:
        moved = next(one for one in visit.fake.world.sessions() if one.version == 3 and one.instance)
        path = session_path(moved.pool, moved.session)
        page = (await visit.http.get(path)).text
        assert "instances held it within" in page
        earlier = (await visit.http.get(f"{path}?from=2020-01-01&to=2020-01-02")).text
        assert "No holder in this range" in earlier
        assert "instances held it within" not in earlier
        assert "It did not move in this range." in earlier


def test_a_home_counts_for_every_range_in_which_the_session_had_it() -> None:
    def home(version: int, bound: float, released: float | None) -> BindingHistoryItem:
        return BindingHistoryItem(
            version=version,
            instance="a",
            reason=BindingReason.COLD,
            router="r",
            bound_at=NOW - timedelta(minutes=bound),
            released_at=None if released is None else NOW - timedelta(minutes=released),
            migration=None,
        )

    homes = [home(1, 90, 70), home(2, 70, 30), home(3, 30, None)]
    found = homes_within(homes, parse_range("now-60m", "now-40m", NOW))
    assert [one.version for one in found] == [2]
    assert [one.version for one in homes_within(homes, parse_range("now-1h", "now", NOW))] == [2, 3]
    assert [one.version for one in homes_within(homes, parse_range("now-3h", "now-2h", NOW))] == []
