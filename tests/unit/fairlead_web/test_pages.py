"""Every page answers, whole and in part, full, empty, broken and refused, with a sentence that helps."""

import asyncio
import csv
import io
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from fairlead_client.resources.plans import PlanState
from fairlead_testing.fakes.loads import CHAT, CODE, HOSTILE, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.addresses import session_path
from fairlead_web.formats import told
from fairlead_web.security import csrf_token

INSTANCE = INSTANCES[CHAT][2]
PAGES = (
    "/",
    "/pools",
    "/pools/default/chat",
    "/pools/default/chat/heatmap",
    "/pools/default/chat/heatmap?view=table&metric=ttft_p95&sort=latest&aggregate=mean",
    "/pools/default/chat/instances",
    f"/pools/default/chat/instances/{INSTANCE}",
    "/pools/default/chat/spec",
    "/pools/research/code/spec",
    "/sessions",
    session_path(CHAT, HOSTILE),
    "/migrations",
    "/migrations/m-0003",
    "/migrations/m-0000",
    "/migrations/m-0005",
    "/migrations?paid_off=false",
    "/reroutes",
    "/reroutes/q-0003",
    "/decisions",
    "/decisions/d-0002",
    "/rejections",
    "/slo",
    "/audit",
    "/audit/56",
    "/audit/57",
    "/settings",
    "/help",
)
LISTS = (
    "/pools",
    "/sessions",
    "/migrations",
    "/decisions",
    "/rejections",
    "/slo",
    "/audit",
    "/pools/default/chat/instances",
    "/pools/default/chat/spec",
)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_pages_render_for_every_role(path: str, role: str) -> None:
    async with visitor(role) as one:
        answer = await one.http.get(path)
        assert answer.status_code == 200
        assert answer.text.count("<h1") == 1
        assert HOSTILE not in answer.text


@pytest.mark.parametrize("path", PAGES)
async def test_a_live_page_gives_all_its_regions_in_one_answer_and_nothing_else(path: str) -> None:
    async with visitor("admin") as admin:
        whole = (await admin.http.get(path)).text
        regions = re.findall(r'\sid="([\w-]+)"[^>]*\sdata-live-refresh="', whole)
        asker = re.search(r'id="live-regions" hidden hx-get="([^"]+)"', whole)
        assert (asker is not None) == bool(regions)
        if asker is None:
            return
        address = asker[1].replace("&amp;", "&")
        part = await admin.http.get(address, headers={"hx-request": "true", "fairlead-regions": " ".join([*regions, "none-such"])})
        assert part.status_code == 200
        assert re.findall(r'<hx-partial hx-target="#([\w-]+)"', part.text) == regions
        assert all(re.search(rf'<(\w+)[^>]*\sid="{name}"', part.text) for name in regions)
        assert "<html" not in part.text
        assert "csrf" not in part.text
        assert "Fairlead-Regions" in part.headers["vary"]
        assert "<html" in (await admin.http.get(address)).text


async def test_a_region_is_rendered_once_for_all_who_look_at_it() -> None:
    async with visitor() as operator:
        operator.fake.requests.clear()
        asks = [operator.http.get("/", headers={"fairlead-regions": "totals"}) for _ in range(10)]
        bodies = {answer.text for answer in await asyncio.gather(*asks)}
        assert len(bodies) == 1
        asked = Counter(path for _, path in operator.fake.requests)
        assert asked["/v1/pools"] == 1
        assert asked["/v1/whoami"] == 10, "everyone is known to the API before they are given a shared answer"


async def test_a_shared_region_is_for_people_with_a_session_only() -> None:
    async with visitor() as operator:
        assert (await operator.http.get("/", headers={"fairlead-regions": "totals"})).status_code == 200
        operator.fake.tokens.pop("operator-token")
        refused = await operator.http.get("/", headers={"fairlead-regions": "totals", "hx-request": "true"})
        assert refused.status_code == 401
        assert "stat" not in refused.text


@pytest.mark.parametrize("path", LISTS)
async def test_lists_come_as_csv_and_json_too(path: str) -> None:
    async with visitor() as operator:
        table = await operator.http.get(f"{path}.csv")
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert "attachment" in table.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert rows
        assert (await operator.http.get(f"{path}.json")).json()


async def test_an_export_has_all_rows_of_the_filter_and_the_page_fifty() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/migrations?pool=default/chat")).text
        rows = list(csv.DictReader(io.StringIO((await operator.http.get("/migrations.csv?pool=default/chat")).text)))
        assert len(rows) == 104
        assert {row["pool"] for row in rows} == {CHAT}
        assert page.count("<tr data-key=") == 50
        assert "50 of 104 shown" in page
        following = re.search(r'href="([^"]+)" rel="next"', page)
        assert following is not None
        second = (await operator.http.get(following[1].replace("&amp;", "&"))).text
        assert second.count("<tr data-key=") == 50


async def test_the_flow_matrix_sums_to_the_list() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/migrations?pool=research/code")).text
        cells = [int(count) for count in re.findall(r'class="heat-\d"[^>]*>(\d+)</a>', page)]
        assert sum(cells) == 26
        assert "26 migrations" in page


async def test_a_range_that_cannot_be_read_is_explained_and_the_last_hour_shown() -> None:
    async with visitor() as operator:
        page = await operator.http.get("/migrations?from=yesterday")
        assert page.status_code == 200
        assert "The time range was not understood." in page.text
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


async def test_a_range_that_does_not_move_is_not_called_live() -> None:
    async with visitor() as operator:
        fixed = (await operator.http.get("/migrations?from=2026-11-21T08:00:00Z&to=2026-11-21T09:00:00Z")).text
        assert "Fixed range" in fixed
        assert "live-pill" not in fixed
        assert "live-pill" in (await operator.http.get("/migrations?from=now-6h")).text


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
        assert 'fairlead-session=""' in page.headers["set-cookie"]
        told = await ghost.http.get("/sessions", headers={"hx-request": "true"})
        assert told.status_code == 401
        assert told.headers["hx-redirect"].startswith("/login")


async def test_empty_lists_say_why() -> None:
    async with visitor() as operator:
        operator.fake.world.pools_known = []
        assert "kubectl apply -f examples/" in (await operator.http.get("/")).text
        assert "Nothing matches these filters" in (await operator.http.get("/migrations?pool=a/b")).text
        assert "No session matches" in (await operator.http.get("/sessions?q=zzz")).text
        assert "No decisions" in (await operator.http.get("/decisions?session=zzz")).text
        assert "No entries" in (await operator.http.get("/audit?actor=zzz")).text


async def test_a_plan_that_no_longer_fits_shows_who_changed_the_pool_and_keeps_the_form() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="10")
        operator.fake.book.plans["p-0001"] = replace(operator.fake.book.plans["p-0001"], state=PlanState.SUPERSEDED)
        answer = await operator.submit("/plans/p-0001/apply", reason="my reason")
        assert answer.status_code == 409
        assert "changed by grace at 10:04" in answer.text
        assert "Nothing was applied by this attempt." in answer.text
        assert operator.fake.book.applied == []


async def test_a_pool_changed_meanwhile_shows_both_changes_and_a_way_to_plan_again() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="10")
        world = operator.fake.world
        diff = [{"op": "replace", "path": "/slo/ttft", "before": "5s", "after": "4s"}]
        spec = {**world.spec(CHAT), "slo": {"ttft": "4s"}}
        later = replace(world.revisions(CHAT)[0], number=5, at=world.now + timedelta(seconds=30), actor="grace", diff=diff, spec=spec)
        world.extra_revisions.append(later)
        page = (await operator.http.get("/plans/p-0001")).text
        assert "What changed since it was planned" in page
        assert "grace" in page
        assert "slo.ttft" in page
        assert ">outdated</span>" in page
        assert ">Apply</button>" not in page
        assert 'name="replicas" value="10"' in page
        again = await operator.submit("/pools/default/chat/plans", page="/plans/p-0001", replicas="10")
        assert again.headers["location"] == "/plans/p-0002"


async def test_a_plan_to_zero_says_that_sessions_are_lost() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="0")
        page = (await operator.http.get("/plans/p-0001")).text
        assert "Sessions lost" in page
        assert "Sessions moved" not in page
        effect = replace(operator.fake.book.plans["p-0001"].effect, predicted_attainment=None, prediction_basis=None)
        operator.fake.book.plans["p-0001"] = replace(operator.fake.book.plans["p-0001"], effect=effect)
        quiet = (await operator.http.get("/plans/p-0001")).text
        assert "nothing is promised about TTFT" in quiet
        assert "TTFT in time after" not in quiet


async def test_a_remedy_is_said_once() -> None:
    async with visitor() as operator:
        answer = await operator.submit("/pools/default/chat/plans", replicas="65")
        assert answer.text.count("Write at most 64.") == 1
    assert told("cursor: 'x' cannot be used; write what next_cursor said", "write what next_cursor said") == (
        "cursor: 'x' cannot be used; write what next_cursor said."
    )
    assert told("It failed", "Try again") == "It failed. Try again."


async def test_a_heavy_plan_without_its_name_is_refused_by_the_server_too() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="0")
        answer = await operator.submit("/plans/p-0001/apply", confirm="wrong", reason="because")
        assert answer.status_code == 422
        assert 'value="wrong"' in answer.text
        assert 'value="because"' in answer.text
        assert operator.fake.book.applied == []


@pytest.mark.parametrize("given", ["", "eight", "-1", "1.5", "٣", "999999999999"])
async def test_a_number_of_replicas_that_is_none_is_explained(given: str) -> None:
    async with visitor() as operator:
        answer = await operator.submit("/pools/default/chat/plans", replicas=given)
        assert answer.status_code == 422
        assert "write a whole number such as 8" in answer.text
        assert operator.fake.book.plans == {}


async def test_a_viewer_who_posts_anyway_is_refused_by_the_api_and_told_why() -> None:
    async with visitor("viewer") as viewer:
        answer = await viewer.submit("/pools/default/chat/plans", replicas="9")
        assert answer.status_code == 403
        assert "needs the role operator" in answer.text
        assert viewer.fake.book.plans == {}


async def test_a_new_tokens_secret_is_shown_once() -> None:
    async with visitor("admin") as admin:
        made = await admin.submit("/settings/tokens", name="ci", role="viewer", days="30")
        assert "flt_shown_once" in made.text
        assert made.headers["cache-control"] == "no-store"
        assert "flt_shown_once" not in (await admin.http.get("/settings")).text
        link = await admin.submit("/settings/login-links", subject="grace", role="viewer")
        assert "http://127.0.0.1:8080/login?token=flt_new" in link.text
        wrong = await admin.submit("/settings/tokens", name="ci", role="viewer", days="900")
        assert wrong.status_code == 422
        assert "write a whole number from 1 to 365" in wrong.text


async def test_preferences_are_kept_in_cookies_and_unknown_ones_ignored() -> None:
    async with visitor() as operator:
        answer = await operator.submit("/settings", theme="dark", time="utc", shortcuts="maybe", next="//evil.example")
        assert answer.headers["location"] == "/"
        cookies = answer.headers.get_list("set-cookie")
        assert [cookie.split(";")[0] for cookie in cookies] == ["fairlead-theme=dark", "fairlead-time=utc"]
        page = await operator.http.get("/help")
        assert all(attribute in page.text for attribute in ('data-theme="dark"', 'data-time="utc"', 'data-shortcuts="on"'))


async def test_a_click_outside_the_picture_goes_back_to_the_heatmap() -> None:
    async with visitor() as operator:
        answer = await operator.http.get("/pools/default/chat/heatmap?metric=running&cell.x=99999&cell.y=1")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/pools/default/chat/heatmap?metric=running"


async def test_the_picture_is_not_sent_again_when_it_is_the_same() -> None:
    async with visitor() as operator:
        path = "/pools/default/chat/heatmap.png?from=2026-11-21T09:00:00Z&to=2026-11-21T10:00:00Z"
        first = await operator.http.get(path)
        assert first.headers["content-type"] == "image/png"
        again = await operator.http.get(path, headers={"if-none-match": first.headers["etag"]})
        assert again.status_code == 304


async def test_one_row_of_a_heatmap_can_be_asked_for_exactly() -> None:
    async with visitor() as operator:
        answer = (await operator.http.get(f"/pools/default/chat/heatmap.json?instance={INSTANCE}&metric=running")).json()
        assert [row["instance"] for row in answer["rows"]] == [INSTANCE]


async def test_two_revisions_are_compared_as_yaml() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/spec?a=1&b=2")).text
        assert '<span class="removed">-replicas: 4' in page
        assert '<span class="added">+replicas: 6' in page
        assert "Evening peak" in page


async def test_stale_answers_are_marked_with_their_age() -> None:
    async with visitor() as operator:
        operator.fake.stale_seconds = 95
        page = (await operator.http.get("/pools")).text
        assert "The database is away." in page
        assert "This page is 1 min 35 s old." in page
        operator.fake.stale_seconds = None
        assert "The database is away." not in (await operator.http.get("/pools")).text


async def test_facets_count_and_filter_pools() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools?policy=ear")).text
        assert CODE in page
        assert f'data-key="{CHAT}"' not in page


async def test_the_release_is_told_to_those_who_are_signed_in() -> None:
    async with visitor() as operator:
        answer = (await operator.http.get("/-/version")).json()
        assert answer["name"] == "fairlead"
