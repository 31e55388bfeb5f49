"""The page about refused requests."""

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor


async def test_other_replicas_are_planned_where_the_link_leads_and_not_offered_of_engines_that_run_already() -> None:
    async with visitor() as operator:
        link = f'href="/pools/{CHAT}#h-change">Plan other replicas'
        assert link in (await operator.http.get("/rejections")).text
        assert 'id="h-change"' in (await operator.http.get(f"/pools/{CHAT}")).text
        operator.fake.world.engines_files[CHAT] = "/srv/fairlead/pool.yaml"
        assert link not in (await operator.http.get("/rejections")).text
