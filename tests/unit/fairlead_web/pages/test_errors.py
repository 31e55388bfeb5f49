"""Pages that cannot show what was asked for (missing, refused, away, stale, signed out) say so and show the way on."""

import pytest

from fairlead_testing.running.web_client import COOKIE, ORIGIN, visitor
from fairlead_web.frame.security import csrf_token


async def test_a_range_that_cannot_be_read_is_explained_and_the_last_hour_shown() -> None:
    async with visitor() as operator:
        page = await operator.http.get("/migrations?from=yesterday")
        assert page.status_code == 200
        assert "This time range cannot be read." in page.text
        assert "&#39;yesterday&#39; cannot be used" in page.text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/pools/default/nothing", 404, "There is no pool default/nothing."),
        ("/pools/default/chat/instances/none", 404, "There is no instance none"),
        ("/migrations/none", 404, "There is no migration none."),
        ("/audit/none", 404, "There is nothing at /audit/none."),
        ("/nowhere", 404, "There is nothing at /nowhere."),
        ("/plans/none", 404, "There is no plan none."),
    ],
)
async def test_what_does_not_exist_is_said_and_the_way_on_shown(path: str, status: int, says: str) -> None:
    async with visitor() as operator:
        answer = await operator.http.get(path)
        assert answer.status_code == status
        assert says in answer.text
        assert 'href="/"' in answer.text


async def test_an_error_page_keeps_the_navigation_and_offers_the_list_to_search() -> None:
    async with visitor() as operator:
        missing = (await operator.http.get("/sessions/default/chat/nobody")).text
        assert '<nav class="sections"' in missing
        assert 'action="/sessions"' in missing
        assert "kubectl" not in missing
        assert "kubectl get fpool" in (await operator.http.get("/pools/default/nothing")).text
        operator.fake.broken.add("/v1/")
        away = (await operator.http.get("/pools")).text
        assert '<nav class="sections"' in away
        assert "Try again" in away


async def test_a_form_sent_after_the_session_ended_leads_back_to_its_page() -> None:
    async with visitor("nobody") as ghost:
        sent = {"replicas": "9", "csrf": csrf_token("nobody-token", "n")}
        headers = {"sec-fetch-site": "same-origin", "referer": "http://127.0.0.1:8080/pools/default/chat?from=now-6h"}
        answer = await ghost.http.post("/pools/default/chat/plans", data=sent, headers=headers)
        assert answer.headers["location"] == "/login?next=%2Fpools%2Fdefault%2Fchat%3Ffrom%3Dnow-6h&ended=1"
        foreign = {**headers, "referer": "https://evil.example/pools"}
        answer = await ghost.http.post("/pools/default/chat/plans", data=sent, headers=foreign)
        assert answer.headers["location"] == "/login?ended=1"


async def test_a_broken_side_source_leaves_the_page_and_is_named() -> None:
    async with visitor() as operator:
        operator.fake.broken.add("/v1/migrations")
        page = await operator.http.get("/")
        assert page.status_code == 200
        assert "Part of this page is missing." in page.text
        assert "migrations: 503 The database is away" in page.text


async def test_an_api_that_is_away_gets_a_page_that_says_what_is_safe() -> None:
    async with visitor() as operator:
        operator.fake.broken.add("/v1/")
        page = await operator.http.get("/pools?q=chat")
        assert page.status_code == 503
        assert page.headers["retry-after"] == "5"
        assert "Routers keep serving" in page.text
        assert 'href="/pools?q=chat">Try again' in page.text
        data = await operator.http.get("/pools.csv")
        assert data.status_code == 503
        assert data.json()["title"] == "The database is away"


async def test_an_ended_session_leads_to_the_login_and_back() -> None:
    async with visitor("nobody") as ghost:
        page = await ghost.http.get("/sessions?q=abc")
        assert page.status_code == 303
        assert page.headers["location"] == "/login?next=%2Fsessions%3Fq%3Dabc&ended=1"
        assert f'{COOKIE}=""' in page.headers["set-cookie"]
        told = await ghost.http.get("/sessions", headers={"hx-request": "true"})
        assert told.status_code == 401
        assert told.headers["hx-redirect"].startswith("/login")


async def test_the_stream_of_a_page_leads_nowhere_when_the_session_has_ended_as_the_page_keeps_what_was_typed_first() -> None:
    async with visitor("nobody") as ghost:
        told = await ghost.http.get("/live?topics=pools", headers={"hx-request": "true", "fairlead-page": "/pools"})
        assert told.status_code == 401
        assert not {"hx-redirect", "location", "set-cookie"} & set(told.headers)


async def test_stale_answers_are_marked_with_their_age() -> None:
    async with visitor() as operator:
        operator.fake.stale_seconds = 95
        page = (await operator.http.get("/pools")).text
        assert "The database is unreachable." in page
        assert "This page is 1 min 35 s old." in page
        operator.fake.stale_seconds = None
        assert "The database is unreachable." not in (await operator.http.get("/pools")).text


async def test_a_form_about_plans_that_was_sent_in_an_outage_is_kept_to_be_sent_again() -> None:
    async with visitor() as operator:
        sent = {"kind": "early-rejection", "headroom": "1.7", "spec": "a:\n  - b", "csrf": csrf_token("operator-token", "n")}
        operator.fake.broken.add("/v1/")
        headers = {"sec-fetch-site": "same-origin"}
        away = await operator.http.post("/pools/default/chat/plans", data=sent, headers=headers)
        assert away.status_code == 503
        assert 'action="/pools/default/chat/plans"' in away.text
        for name, value in sent.items():
            assert f'<input type="hidden" name="{name}" value="{value}">' in away.text
        assert "Send it again" in away.text
        made = await operator.http.post("/keys/new", data={**sent, "name": "team"}, headers=headers)
        assert "Send it again" not in made.text, "two keys would be made"


async def test_an_error_page_leads_back_to_the_form_that_was_sent() -> None:
    async with visitor("operator") as operator:
        form = operator.form_token((await operator.http.get("/keys")).text)
        operator.fake.broken.add("/v1/gateway-keys")
        headers = {"sec-fetch-site": "same-origin", "referer": f"{ORIGIN}/keys?cursor=50"}
        answer = await operator.http.post("/keys/new", data={"csrf": form, "name": "x"}, headers=headers)
        assert answer.status_code == 503
        assert 'href="/keys?cursor=50">Back to the form</a>' in answer.text
        assert "Back to the form" not in (await operator.http.get("/keys")).text
