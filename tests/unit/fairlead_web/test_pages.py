"""Every page answers every role, whole and in part, full and empty."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead_client.resources.audit import AuditAction
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.text.addresses import session_path, tree_path

ROOT = Path(__file__).parents[3]
INSTANCE = INSTANCES[CHAT][2]
PAGES = (
    "/",
    "/pause-migrations",
    "/pause-migrations?to=Enabled",
    "/advice",
    "/pools/research/code/advice",
    "/pools",
    "/pools/default/chat",
    "/pools/default/chat/heatmap",
    "/pools/default/chat/heatmap?view=table&metric=ttft_p95&sort=latest&aggregate=mean",
    "/pools/default/chat/heatmap?group=node&compare=day&stack=kv_usage,hit_rate&sort=pain",
    f"/pools/default/chat/instances/{INSTANCE}/explanation?metric=ttft_p95",
    "/pools/default/chat/differences",
    f"/pools/default/chat/differences?instances={INSTANCE}",
    "/pools/default/chat/instances",
    f"/pools/default/chat/instances/{INSTANCE}",
    f"/pools/default/chat/instances/{INSTANCE}/log",
    f"/pools/default/chat/instances/{INSTANCE}/metrics",
    "/pools/default/chat/comments",
    "/pools/default/chat/comments?plan=p-0001",
    "/pools/default/chat/test",
    "/pools/default/chat/policy",
    "/pools/default/chat/policy?policy=ear",
    "/pools/default/chat/spec",
    "/pools/default/chat/edit",
    "/pools/new",
    "/pools/new?example=chat-8",
    "/pools/default/chat/ring",
    "/pools/default/chat/predictor",
    "/pools/default/chat/engine",
    "/pools/research/code/predictor",
    "/pools/default/chat/scaling",
    "/pools/default/chat/ring?add=1&anchors=80",
    "/pools/research/code/spec",
    "/pools/default/chat/sessions",
    "/pools/default/chat/migrations",
    "/pools/default/chat/reroutes",
    "/pools/default/chat/decisions",
    "/pools/default/chat/rejections",
    "/pools/default/chat/schedules",
    "/pools/default/chat/forecast",
    "/pools/default/chat/audit",
    "/sessions",
    session_path(CHAT, HOSTILE),
    tree_path(CHAT, HOSTILE),
    "/pools/default/chat/tasks",
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
    "/cost",
    "/cost?by=key",
    "/cost?by=session&pool=default/chat&from=now-30d",
    "/schedules",
    "/schedules/default/chat/night",
    "/simulator",
    "/simulator?pool=research/code",
    "/pools/default/chat/simulator?policy=ear",
    "/slo",
    "/pools/default/chat/slo",
    "/series",
    "/pools/default/chat/series?metrics=attainment,goal",
    f"/pools/default/chat/instances/{INSTANCE}/series?metrics=ttft_p95",
    "/pools/default/chat/canary",
    "/pools/default/chat/slo?ttft=2s&tpot=100ms&percentile=95",
    "/audit",
    "/audit?action=plan.*&from=now-7d",
    "/audit/56",
    "/audit/57",
    "/keys",
    "/notices",
    "/notices?webhook=wh-0",
    "/search",
    "/search?q=c",
    "/search?q=no-such-thing",
    "/settings",
    "/docs",
    "/help",
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


@pytest.mark.parametrize("path", PAGES)
async def test_a_region_asked_for_alone_is_as_it_is_in_the_whole_page(path: str) -> None:
    async with visitor("admin") as admin:
        whole = told(elements((await admin.http.get(path)).text))
        for name in whole.keys() - {"newest", "present"}:  # which are empty in the page
            part = (await admin.http.get(path, headers={"hx-request": "true", "fairlead-regions": name})).text
            assert told(elements(part)) == {name: whole[name]}


def elements(html: str) -> dict[str, str]:
    """Return the regions in the page, by name."""
    found = {}
    for opening in re.finditer(r'<(\w+)\s[^>]*?\bid="([\w-]+)"[^>]*\sdata-live-refresh="', html):
        depth = 0
        for tag in re.finditer(rf"<(/?){opening[1]}\b[^>]*>", html[opening.start() :]):
            depth += -1 if tag[1] else 1
            if depth == 0:
                found[opening[2]] = html[opening.start() : opening.start() + tag.end()]
                break
    return found


def told(found: dict[str, str]) -> dict[str, str]:
    """Return the page without the parts that differ each time: form tokens and ages."""
    return {name: re.sub(r'name="csrf" value="[^"]*"|<time.*?</time>|\s+', " ", html, flags=re.DOTALL) for name, html in found.items()}


async def test_empty_lists_say_why() -> None:
    async with visitor() as operator:
        operator.fake.world.pools_known = []
        for path in ("/", "/pools", "/slo", "/simulator"):
            offered = re.search(r"kubectl apply -f (\S+?)<", (await operator.http.get(path)).text)
            assert offered is not None and (ROOT / offered[1]).is_file(), f"{path} offers no example that there is"
        assert "Nothing matches these filters" in (await operator.http.get("/migrations?pool=a/b")).text
        assert "No session matches" in (await operator.http.get("/sessions?q=zzz")).text
        assert "No decisions" in (await operator.http.get("/decisions?session=zzz")).text
        assert "No entries" in (await operator.http.get("/audit?actor=zzz")).text


async def test_two_revisions_are_compared_as_yaml() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/spec?a=1&b=2")).text
        assert '<span class="removed">-replicas: 4' in page
        assert '<span class="added">+replicas: 6' in page
        assert "Evening peak" in page


async def test_any_two_revisions_are_compared_on_whatever_page_of_the_list_they_are() -> None:
    async with visitor() as operator:
        world, at = operator.fake.world, "/pools/default/chat/spec"
        newest = world.revisions(CHAT)[0]
        world.extra_revisions = [replace(newest, number=n, spec={**newest.spec, "replicas": n}) for n in range(250, newest.number, -1)]
        page = (await operator.http.get(at)).text
        following = re.search(r'href="([^"]+)" rel="next"', page)
        assert following
        page = (await operator.http.get(following[1])).text
        link = re.search(r'href="([^"]+)"><strong>51<', page)
        assert link, "the last one of the second page"
        for address, heading in (
            (link[1].replace("&amp;", "&"), "Revision 50 → 51"),
            (f"{at}?a=46&b=47", "Revision 46 → 47"),
            (f"{at}?a=249&b=20&{following[1].partition('?')[2]}", "Revision 249 → 20"),
        ):
            page = (await operator.http.get(address)).text
            assert heading in " ".join(page.split())
            assert f'<option value="{heading.split()[1]}" selected>' in page
        assert f'name="cursor" value="{following[1].partition("cursor=")[2]}"' in page
        for unknown in ("a=251", "b=x", "a=0&b=2"):
            assert (await operator.http.get(f"{at}?{unknown}")).status_code == 404


async def test_a_list_below_a_pool_is_that_pools_alone_in_the_page_and_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as operator:
        for name in ("sessions", "migrations", "reroutes", "decisions"):
            page = (await operator.http.get(f"/pools/default/chat/{name}")).text
            assert f'<a href="/pools/default/chat/{name}" aria-current="page">' in page or name == "reroutes"
            assert 'name="pool"' not in page
            assert f"/pools/default/chat/{name}.csv" in page
            rows = (await operator.http.get(f"/pools/default/chat/{name}.json")).json()["items"]
            assert {row["pool"] for row in rows} == {CHAT}
        instance = replace(operator.fake.world.audit()[0], id=61, object=f"{CHAT}/chat-abc", action=AuditAction.PLAN_APPLIED)
        alike = replace(instance, id=62, object=f"{CHAT}-two")
        entries = [*operator.fake.world.audit(), instance, alike]
        monkeypatch.setattr(operator.fake.world, "audit", lambda: entries)
        page = (await operator.http.get("/pools/default/chat/audit")).text
        assert set(re.findall(r'data-label="Object"[^>]*>\s*(?:<span[^>]* title=")?([^"<\s]+)', page)) == {CHAT, instance.object}
        rows = (await operator.http.get("/pools/default/chat/audit.json")).json()["items"]
        assert {row["object"] for row in rows} == {CHAT, instance.object}, "what was done to its instances, and to no pool named alike"
        assert (await operator.http.get("/pools/default/chat/audit.json?object=token/ci")).json()["items"] == []


async def test_clearing_filters_keeps_the_time_and_the_order() -> None:
    async with visitor() as operator:
        for path, cleared in (
            ("/migrations?from=now-6h&to=now&trigger=slo&cursor=", "/migrations?from=now-6h&to=now"),
            ("/pools?sort=name&q=chat", "/pools?sort=name"),
            ("/keys?from=now-6h", None),
            ("/migrations?from=now-6h&to=now&sort=at", None),
            (f"/pools/{CHAT}/slo?from=now-6h&to=now&ttft=3s", f"/pools/{CHAT}/slo?from=now-6h&to=now"),
        ):
            page = (await operator.http.get(path)).text
            found = re.search(r'href="([^"]+)">Clear<', page)
            assert (found and found[1].replace("&amp;", "&")) == cleared


async def test_the_frame_shows_the_pool_as_the_page_does_even_among_many() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/decisions")).text
        assert re.search(r'id="workspace".*?badge (good|warn|bad)', page, re.DOTALL)
        assert page.count('class="side-pools"') == 1


async def test_facets_count_and_filter_pools() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools?policy=ear")).text
        assert CODE in page
        assert f'data-key="{CHAT}"' not in page


async def test_the_release_is_told_to_those_who_are_signed_in() -> None:
    async with visitor() as operator:
        answer = (await operator.http.get("/-/version")).json()
        assert answer["name"] == "fairlead"
