"""Pages of a fleet with more pools than one answer of the API has: no pool is forgotten without a note."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES, SLO_TTFT
from fairlead_testing.running.web_client import Visitor, visitor

FILE = "/srv/fairlead/pool.yaml"


def fleet(one: Visitor, monkeypatch: pytest.MonkeyPatch, count: int) -> str:
    """Make this many pools, all within their SLO but the last by name; return that pool's name."""
    world = one.fake.world
    names = [f"team/pool-{number:04}" for number in range(count)]
    for name in names:
        monkeypatch.setitem(INSTANCES, name, [f"{name.removeprefix('team/')}-0"])
        monkeypatch.setitem(SLO_TTFT, name, 2.5)
        world.desired[name], world.owner[name], world.percentile[name], world.attainment[name] = 4, None, 90.0, 0.99
    world.well |= set(names)
    world.attainment[names[-1]] = 0.2
    world.pools_known = names
    return names[-1]


async def asked_by(one: Visitor, path: str) -> Counter[str]:
    """Return the API calls that a page makes, with their numbers."""
    one.fake.requests.clear()
    assert (await one.http.get(path)).status_code == 200
    return Counter(path for _, path in one.fake.requests)


def told(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def after_of(page: str) -> str:
    """Return the pool after which the next part of the pools begins."""
    found = re.search(r'name="after" value="([^"]*)"', page)
    return found[1] if found else ""


def cards(page: str) -> list[str]:
    return re.findall(r'<article id="card-[^>]*>.*?<h2><a [^>]*>([^<]+)<', page, re.DOTALL)


def sidebar(page: str) -> list[str]:
    return re.findall(r'title="([^":]+): ', page.split('class="side-pools"', 1)[1].split("</ul>", 1)[0])


async def test_the_overview_of_sixty_pools_has_the_worst_first_and_counts_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, 60)
        page = (await one.http.get("/")).text
        assert cards(page)[0] == last
        assert "1 of 60 pools below their goal" in told(page)
        assert "60 / 240" in told(page), "instances of all"
        assert sidebar(page)[0] == last
        assert "The worst 40 of 60 pools" in told(page)
        assert len(cards(page)) == 40
        assert len(re.findall(r"<[a-z]", page)) <= 2_500
        assert "the first" not in told(page).split("Pictures")[0]


async def test_a_fleet_too_large_for_the_overview_is_said_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, 230)
        page = told((await one.http.get("/")).text)
        assert "instances now, the first 200 of 230 pools by name" in page
        assert "The worst 40 of 200 pools" in page
        assert "the first 200 of 230 pools by name" in told((await one.http.get("/slo")).text)
        simulator = (await one.http.get(f"/simulator?pool={last}")).text
        assert "Pool, of the first 200 of 230 pools by name" in told(simulator)
        assert f'<option value="{last}" selected>' in simulator


async def test_all_of_two_hundred_and_thirty_pools_are_paused_in_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("operator") as one:
        last = fleet(one, monkeypatch, 230)
        page = (await one.http.get("/pause-migrations")).text
        assert "Migrations enabled in 230 of 230 pools" in told(page)
        assert "These are 200 of 230 pools" in told(page)
        assert len(re.findall(r"<[a-z]", page)) <= 2_500
        for count, heading in ((200, "200 pools; 30 more allow migrations"), (30, "30 pools")):
            planned = await one.submit("/pause-migrations/plans", to="Paused", after=after_of(page))
            ids = planned.headers["location"].partition("plans=")[2]
            shown = told((await one.http.get(planned.headers["location"])).text)
            assert (len(ids.split(",")), f"Pause migrations in {heading}" in shown) == (count, True)
            applied = await one.submit("/pause-migrations/apply", to="Paused", plans=ids)
            assert "200 of 200 pools paused" not in told((await one.http.get("/")).text)
            page = (await one.http.get(applied.headers["location"])).text
        assert "Plan the pause" not in page
        assert one.fake.world.pool(last).migrations == "Paused"
        assert "Migrations paused in all pools" in told((await one.http.get("/pause-migrations")).text)


async def test_the_next_part_is_offered_although_pools_of_the_first_could_not_be_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("operator") as one:
        last = fleet(one, monkeypatch, 230)
        for name in one.fake.world.pools_known[:200]:
            one.fake.world.owner[name] = "Argo CD (shop)"
        planned = await one.submit("/pause-migrations/plans", to="Paused")
        page = (await one.http.get(planned.headers["location"])).text
        planned = await one.submit("/pause-migrations/plans", to="Paused", after=after_of(page))
        await one.submit("/pause-migrations/apply", to="Paused", plans=planned.headers["location"].partition("plans=")[2])
        assert one.fake.world.pool(last).migrations == "Paused"


async def test_the_overview_says_of_which_pools_it_counts_the_paused_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("operator") as one:
        fleet(one, monkeypatch, 230)
        one.fake.world.spec_changes |= {name: {"routing": {"migrations": "Paused"}} for name in one.fake.world.pools_known[:200]}
        page = told((await one.http.get("/")).text)
        assert "200 of the first 200 of 230 pools paused" in page
        assert "Pause all migrations…" in page


async def test_a_choice_of_a_pool_says_that_it_does_not_offer_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        for count, cut in ((60, False), (230, True)):
            fleet(one, monkeypatch, count)
            for path in ("/sessions", "/migrations", "/decisions", "/rejections", "/schedules"):
                assert ("Pool (of the first 200 of 230 pools by name)" in told((await one.http.get(path)).text)) is cut


@pytest.mark.parametrize(("count", "first"), [(200, ""), (201, "200 of 201"), (1_234, "200 of 1,234")])
async def test_the_sidebar_says_of_which_pools_it_names_the_worst(monkeypatch: pytest.MonkeyPatch, count: int, first: str) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, count)
        for path in ("/", "/sessions", f"/pools/{last}/sessions"):
            told = re.findall(r'href="/pools"\s+title="[^"]+">([^<]+)<', (await one.http.get(path)).text)
            assert told == ([f"Worst of the first {first} pools by name"] if first else [])
        told = re.findall(r'href="/pools"\s+title="[^"]+">([^<]+)<', (await one.http.get("/pools")).text)
        assert told == (["Worst of the first 1,000 of 1,234 pools by name"] if count > 1_000 else []), "the list knows more"


async def test_every_page_knows_the_worst_of_sixty_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, 60)
        for path in ("/sessions", "/slo", "/simulator", "/help", "/pools"):
            assert sidebar((await one.http.get(path)).text)[0] == last


async def test_a_page_asks_once_for_pools_that_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        fleet(one, monkeypatch, 50)
        for path in ("/", "/pools", "/slo", "/simulator", "/help", "/sessions", "/audit"):
            assert (await asked_by(one, path))["/v1/pools"] == 1


async def test_the_simulator_is_that_of_the_pool_chosen_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, 60)
        for path in ("/simulator", f"/simulator?pool={last}", "/simulator?pool=team/pool-0058"):
            page = (await one.http.get(path)).text
            name = path.partition("pool=")[2] or last
            assert f'action="/pools/{name}/simulator"' in page
            assert f'<option value="{name}" selected>' in page
            assert re.findall(r'<option value="(team/[^"]+)"', page) == one.fake.world.pools_known
        for unknown in ("team/none", "none"):
            assert (await one.http.get(f"/simulator?pool={unknown}")).status_code == 404


async def test_slo_versions_of_all_pools_come_fifty_to_a_page_and_whole_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last, address, seen = fleet(one, monkeypatch, 60), "/slo", list[str]()
        while address:
            page = (await one.http.get(address)).text
            shown = re.findall(r'<tr data-key="([^"]+)-\d+"', page)
            assert 0 < len(shown) <= 50
            seen += shown
            following = re.search(r'href="([^"]+)" rel="next"', page)
            address = following[1].replace("&amp;", "&") if following else ""
        assert sorted(set(seen)) == one.fake.world.pools_known
        rows = (await one.http.get("/slo.json")).json()["items"]
        assert [row["pool"] for row in rows] == seen
        alone = (await one.http.get(f"/slo?pool={last}")).text
        assert set(re.findall(r'<tr data-key="([^"]+)-\d+"', alone)) == {last}
        assert (await asked_by(one, "/slo"))[f"/v1/pools/{last}/slo"] == 0, "the first page needs no more than fifty pools"


async def test_all_versions_of_a_pools_slo_are_in_a_file_and_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        newest = one.fake.world.slo(CHAT)[0]
        versions = [replace(newest, version=number) for number in range(130, 0, -1)]
        monkeypatch.setattr(one.fake.world, "slo", lambda pool: versions)
        assert [row["version"] for row in (await one.http.get(f"/slo.json?pool={CHAT}")).json()["items"]] == [*range(130, 0, -1)]
        assert len((await one.http.get(f"/slo.csv?pool={CHAT}")).text.splitlines()) == 131
        for cursor, words in (("0", "50 shown"), ("50", "50 shown"), ("100", "30 of 130 shown")):
            page = (await one.http.get(f"/slo?pool={CHAT}&cursor={cursor}")).text
            assert words in told(page)
            assert ('rel="next"' in page) is (cursor != "100")


async def test_a_file_of_versions_is_refused_rather_than_sent_without_those_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        one.fake.broken.add(f"/v1/pools/{CODE}/slo")
        for name in ("slo.csv", "slo.json"):
            assert (await one.http.get(f"/{name}")).status_code == 503
        page = await one.http.get("/slo")
        assert (page.status_code, "Part of this page is missing" in page.text) == (200, True)


async def test_a_pool_beyond_those_the_frame_reads_has_its_badge_and_is_known_to_run_already(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("admin") as one:
        fleet(one, monkeypatch, 230)
        one.fake.world.pools_known += [CHAT]
        one.fake.world.engines_files[CHAT] = FILE
        at = f"/pools/{CHAT}/instances/{INSTANCES[CHAT][0]}"
        page = (await one.http.get(at)).text
        assert re.search(r'id="workspace".*?badge (good|warn|bad)', page, re.DOTALL)
        assert "goes on running" in told(page)
        for absent in ("Drain and replace", f"/pools/{CHAT}/scaling"):
            assert absent not in page
        assert CHAT in sidebar(page)
        asked = await asked_by(one, at)
        assert (asked["/v1/pools"], asked[f"/v1/pools/{CHAT}"]) == (2, 1)


async def test_a_pool_that_is_no_more_is_no_missing_part_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        fleet(one, monkeypatch, 230)
        for name in ("team/none", "none"):
            page = await one.http.get(f"/sessions?pool={name}")
            assert page.status_code == 200
            assert "Part of this page is missing" not in page.text


async def test_the_list_of_pools_is_searched_filtered_and_ordered_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        last = fleet(one, monkeypatch, 130)
        page = (await one.http.get("/pools")).text
        shown = re.findall(r'<tr data-key="([^"]+)"', page)
        assert (shown[0], len(shown)) == (last, 50)
        assert "50 of 130 shown" in told(page)
        assert "well 129" in told(page)
        assert len(re.findall(r"<[a-z]", page)) <= 2_500
        for query in ("q=pool-0129", "health=out of SLO"):
            page = (await one.http.get(f"/pools?{query}")).text
            assert re.findall(r'<tr data-key="([^"]+)"', page) == [last]
            assert "1 of 130 pools" in told(page)
        second = (await one.http.get("/pools?sort=name&cursor=100")).text
        assert re.findall(r'<tr data-key="([^"]+)"', second) == one.fake.world.pools_known[100:]


async def test_a_simulation_of_any_of_sixty_pools_is_found_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        fleet(one, monkeypatch, 58)
        one.fake.world.pools_known += [CODE, CHAT]
        form = f"/pools/{CHAT}/simulator"
        made = (await one.submit(form, page=form, policy="now", rates="1")).headers["location"].partition("?")[0]
        assert (await one.http.get(f"/simulator/{made.rpartition('/')[2]}")).headers["location"] == made
