"""The page of one schedule."""

import html

import pytest
import yaml

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor


async def test_what_is_in_force_names_the_schedule_that_decides_it_and_nobody_where_none_does() -> None:
    async with visitor() as viewer:
        answer = await viewer.http.get("/schedules/default/chat/night")
    assert answer.status_code == 200
    rows = {" ".join(row.split("</th>")[0].split(">")[-1].split()): row for row in answer.text.split('<th scope="row">')}
    assert "by night" in rows["SLO"]
    assert "by " not in rows["Ratio"]


async def test_a_new_schedule_begins_with_the_roles_of_its_pool_within_their_bounds() -> None:
    async with visitor("admin") as admin:
        roles = [{"name": "prefill", "minReplicas": 1, "maxReplicas": 5}, {"name": "decode", "minReplicas": 1}]
        admin.fake.world.spec_changes[CHAT] = {"replicas": 1, "roles": roles}
        admin.fake.world.roles_wanted[CHAT] = {"prefill": 4, "decode": 3}
        page = (await admin.http.get(f"/schedules?pool={CHAT}")).text
        first = (await admin.http.get("/schedules")).text
        text = html.unescape(page.split("<textarea", 1)[1].split(">", 1)[1].split("</textarea>", 1)[0])
        assert yaml.safe_load(text)["roles"] == [{"name": "prefill", "minReplicas": 5}, {"name": "decode", "minReplicas": 6}]
        assert f'name="pool" value="{CHAT}"' in first
        assert (await admin.submit("/schedules", pool=CHAT, name="day", spec=text)).status_code == 303
        assert (await admin.http.get("/schedules?pool=default/none")).status_code == 200


@pytest.mark.parametrize(
    ("pool", "spec", "told"),
    [("default/chat", "cron: [1", "no valid YAML in line 1, column 9"), ("chat", "cron: 1", "write it as in default/chat")],
)
async def test_a_schedule_that_cannot_be_used_stays_in_the_form_beside_what_is_wrong(pool: str, spec: str, told: str) -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/schedules", pool=pool, name="night", spec=spec)
    assert answer.status_code == 422
    assert told in answer.text
    assert f'value="{pool}"' in answer.text
    assert f"{spec}</textarea>" in answer.text
