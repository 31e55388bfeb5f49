"""A pool's spec as text: checked, planned, and kept as typed when it is refused."""

from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_testing.running.web_client import visitor

EDIT = "/pools/default/chat/edit"


async def test_the_present_spec_is_in_the_editor_and_its_change_becomes_a_plan() -> None:
    async with visitor("admin") as admin:
        page = (await admin.http.get(EDIT)).text
        assert "prefillTokensPerSecond: 6250" in page
        assert "Time to first token." in page
        text = "model: m\nreplicas: 3\n"
        answer = await admin.submit(EDIT, spec=text, action="plan")
        assert (answer.status_code, answer.headers["location"]) == (303, "/plans/p-0001")
        assert admin.fake.book.plans["p-0001"].kind is PlanKind.SPEC


async def test_a_check_shows_the_difference_and_plans_nothing() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit(EDIT, spec="model: m\nreplicas: 3\n", action="check")
        assert answer.status_code == 200
        assert "The spec is valid" in answer.text
        assert '<span class="added">+replicas: 3' in answer.text
        assert not admin.fake.book.plans


async def test_a_refused_text_stays_with_the_fault_at_its_line() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit(EDIT, spec="model: m\nslo:\n  ttft: soon\n", action="plan")
        assert answer.status_code == 422
        assert "Line 3: " in answer.text
        assert "ttft: soon</textarea>" in answer.text.replace("\n</textarea>", "</textarea>")
        assert not admin.fake.book.plans


async def test_a_new_pool_starts_from_an_example_and_becomes_a_plan() -> None:
    async with visitor("admin") as admin:
        assert 'href="/pools/new?example=chat-8"' in (await admin.http.get("/pools/new")).text
        page = (await admin.http.get("/pools/new?example=chat-8")).text
        assert 'value="default/chat-8"' in page
        answer = await admin.submit("/pools/new", name="default/fresh", spec="model: m\nreplicas: 2\n", action="plan")
        assert answer.status_code == 303
        assert admin.fake.book.plans["p-0001"].kind is PlanKind.CREATE
        shown = (await admin.http.get("/plans/p-0001")).text
        assert "Instances added" in shown


async def test_a_name_that_is_taken_or_none_is_refused_at_the_field_and_the_text_stays() -> None:
    async with visitor("admin") as admin:
        taken = await admin.submit("/pools/new", name="default/chat", spec="model: m\n", action="plan")
        assert (taken.status_code, "there is a pool default/chat already" in taken.text) == (409, True)
        none = await admin.submit("/pools/new", name="", spec="model: kept\n", action="plan")
        assert (none.status_code, 'id="name-problem"' in none.text, "model: kept" in none.text) == (422, True, True)


async def test_who_is_no_admin_reads_the_editor_and_sends_nothing() -> None:
    async with visitor("operator") as operator:
        assert "This needs the role admin" in (await operator.http.get(EDIT)).text
        assert (await operator.http.get("/")).text.count("New pool") == 0
