"""The page of one schedule."""

import pytest

from fairlead_testing.running.web_client import visitor


async def test_what_is_in_force_names_the_schedule_that_decides_it_and_nobody_where_none_does() -> None:
    async with visitor() as viewer:
        answer = await viewer.http.get("/schedules/default/chat/night")
    assert answer.status_code == 200
    rows = {" ".join(row.split("</th>")[0].split(">")[-1].split()): row for row in answer.text.split('<th scope="row">')}
    assert "by night" in rows["SLO"]
    assert "by " not in rows["Ratio"]


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
