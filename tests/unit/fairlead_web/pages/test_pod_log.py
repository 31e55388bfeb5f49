"""The log of an instance: its end, a search, the previous container, and the reason if there is none."""

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor

INSTANCE = INSTANCES[CHAT][0]
LOG = f"/pools/{CHAT}/instances/{INSTANCE}/log"


async def test_the_log_and_the_events_are_one_click_from_the_instance_and_live() -> None:
    async with visitor("operator") as operator:
        assert f'href="{LOG}"' in (await operator.http.get(LOG.removesuffix("/log"))).text
        page = (await operator.http.get(LOG)).text
        assert "line 399 &lt;b&gt;" in page
        assert "line 99 " not in page, "the end of it"
        assert f'hx-get="{LOG}"' in page
        assert "Back-off restarting failed container" in page
        assert f"kubectl -n default logs {INSTANCE} --tail=300 -f" in page


async def test_a_search_shows_the_lines_with_it_and_stays_in_the_field() -> None:
    async with visitor("operator") as operator:
        page = (await operator.http.get(f"{LOG}?q=line+7")).text
        assert "line 71 " in page
        assert "line 80 " not in page
        assert 'name="q" value="line 7"' in page
        assert "None of the last 400 lines has this text" in (await operator.http.get(f"{LOG}?q=zzz")).text


async def test_the_log_before_the_restart_is_read_once() -> None:
    async with visitor("operator") as operator:
        page = (await operator.http.get(f"{LOG}?previous=true")).text
        assert "CUDA error: out of memory" in page
        assert 'hx-trigger="every' not in page
        assert "--previous" in page


async def test_a_pod_that_is_gone_and_a_viewer_are_told_why_there_is_no_log() -> None:
    async with visitor("operator") as operator:
        operator.fake.world.pods_gone.add(INSTANCE)
        page = (await operator.http.get(LOG)).text
        assert "The pod is gone" in page
        assert "Back-off" in page
    async with visitor("viewer") as viewer:
        assert "Reading logs needs the role operator" in (await viewer.http.get(LOG)).text


async def test_the_choice_of_the_previous_container_stands_above_the_log() -> None:
    async with visitor("operator") as operator:
        page = (await operator.http.get(LOG)).text
    assert page.index("previous container") < page.index('id="h-log"') < page.index('id="h-pod-events"')
