"""The page that pauses the migrations of all pools at once."""

from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.web_client import visitor


async def test_all_pools_are_planned_at_once_applied_at_once_and_let_go_on_again() -> None:
    async with visitor("operator") as one:
        for mode, words in (("Paused", "Pause all migrations"), ("Enabled", "Resume migrations")):
            assert words in (await one.http.get("/")).text
            planned = await one.submit("/pause-migrations/plans", to=mode)
            assert planned.status_code == 303
            shown = (await one.http.get(planned.headers["location"])).text
            ids = planned.headers["location"].partition("plans=")[2]
            assert all(name in shown for name in (CHAT, CODE, "Apply all"))
            applied = await one.submit("/pause-migrations/apply", to=mode, plans=ids, reason="storm")
            assert applied.status_code == 303
            again = await one.submit("/pause-migrations/apply", to=mode, plans=ids)
            assert again.status_code == 303
            assert "Apply all" not in (await one.http.get(applied.headers["location"])).text
            assert {one.fake.world.spec(pool)["routing"]["migrations"] for pool in (CHAT, CODE)} == {mode}
        assert len(one.fake.book.applied) == 4


async def test_a_pool_that_somebody_else_owns_is_shown_and_left_alone() -> None:
    async with visitor("operator") as one:
        one.fake.world.owner[CODE] = "Argo CD (shop)"
        planned = await one.submit("/pause-migrations/plans", to="Paused")
        assert "Argo CD (shop) owns it" in (await one.http.get(planned.headers["location"])).text
        await one.submit("/pause-migrations/apply", to="Paused", plans=planned.headers["location"].partition("plans=")[2])
        assert [one.fake.world.pool(pool).migrations for pool in (CHAT, CODE)] == ["Paused", "Enabled"]


async def test_who_may_not_plan_sees_why_and_a_mode_there_is_not_is_refused() -> None:
    async with visitor("viewer") as one:
        assert "This needs the role operator" in (await one.http.get("/pause-migrations")).text
        assert (await one.http.get("/pause-migrations?to=Sometimes")).status_code == 404
