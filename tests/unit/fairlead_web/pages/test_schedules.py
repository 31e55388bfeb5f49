"""The page of one schedule."""

from fairlead_testing.running.web_client import visitor


async def test_what_is_in_force_names_the_schedule_that_decides_it_and_nobody_where_none_does() -> None:
    async with visitor() as viewer:
        answer = await viewer.http.get("/schedules/default/chat/night")
    assert answer.status_code == 200
    rows = {" ".join(row.split("</th>")[0].split(">")[-1].split()): row for row in answer.text.split('<th scope="row">')}
    assert "by night" in rows["SLO"]
    assert "by " not in rows["Ratio"]
