"""The page of one pool: the data that its policy is given."""

import html
import re

import pytest
import yaml

from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.resources.pools import PoolCondition, PoolDetail
from fairlead_testing.fakes.public_data.loads import CODE, INSTANCES
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.web_client import visitor

CONFIG = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [{"type": "active-request-scorer", "parameters": {"requestTimeout": "2m"}}],
}


async def test_a_file_of_the_endpoint_picker_is_shown_as_yaml_beside_what_of_it_is_not_needed() -> None:
    async with visitor() as viewer:
        viewer.fake.world.spec_changes[CODE] = {"routing": {"policy": "endpoint-picker", "parameters": {"config": CONFIG}}}
        page = (await viewer.http.get(f"/pools/{CODE}")).text
    shown = page.split("The policy&#39;s" if "The policy&#39;s" in page else "The policy's", 1)[1]
    text = html.unescape(shown.split("<code>", 1)[1].split("</code>", 1)[0])
    assert yaml.safe_load(text) == CONFIG
    assert "config.plugins[0].parameters.requestTimeout is not needed: a request is counted until it ends" in shown


async def test_plain_parameters_stay_in_the_table_and_bring_no_note() -> None:
    async with visitor() as viewer:
        viewer.fake.world.spec_changes[CODE] = {"routing": {"policy": "lodestar", "parameters": {"near_best": 0.2}}}
        page = (await viewer.http.get(f"/pools/{CODE}")).text
    assert "· near_best" in page
    assert "is not needed" not in page
    assert "The policy's" not in page


async def test_the_page_counts_instances_and_does_not_ask_what_each_of_them_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, asked = ControlApi.pool, list[bool]()

    async def noted(self: ControlApi, key: PoolKey, *, instances: bool = True) -> PoolDetail:
        asked.append(instances)
        return await pool(self, key, instances=instances)

    monkeypatch.setattr(ControlApi, "pool", noted)
    async with visitor() as viewer:
        page = (await viewer.http.get(f"/pools/{CODE}")).text
    assert asked == [False]
    chips = re.sub(r"<[^>]+>", " ", page.split('id="states"', 1)[1].split("</div>", 1)[0])
    assert sum(map(int, re.findall(r"\b\d+\b", chips))) == len(INSTANCES[CODE])


def said_of_conditions(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.split('id="conditions"', 1)[1].split("</section>", 1)[0]).split())


async def test_conditions_say_of_when_they_are_beside_figures_that_are_newer() -> None:
    async with visitor() as viewer:
        page = said_of_conditions((await viewer.http.get(f"/pools/{CODE}")).text)
    assert "As of the operator's report, 5 s ago ; the tiles above are newer." in page
    assert "answers now" not in page


async def test_a_page_that_tells_of_no_answer_from_the_api_that_made_it_says_that_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered = [PoolCondition(type="SLOMet", status="Unknown", reason="ControlPlaneUnreachable", message="Attainment is not known")]
    monkeypatch.setattr(World, "conditions", lambda self, pool: unanswered)
    async with visitor() as viewer:
        page = said_of_conditions((await viewer.http.get(f"/pools/{CODE}")).text)
    assert "had not answered the operator by then. It answers now: this page is made of its answers." in page


async def test_last_changes_name_the_actor_once() -> None:
    async with visitor() as viewer:
        page = (await viewer.http.get("/")).text
    changes = " ".join(re.sub(r"<[^>]+>", " ", page.split('id="changes"', 1)[1].split("</ul>", 1)[0]).split())
    assert "operator : pool spec changed default/chat" in changes
