"""`/notices`: an admin makes, tests and deletes webhooks; addresses and secrets are never shown again."""

from fairlead_testing.running.web_client import visitor


async def test_a_webhook_is_made_and_its_secret_shown_once() -> None:
    async with visitor("admin") as admin:
        typed = {
            "name": "pager",
            "url": "https://pager.example.com/private",
            "form": "slack",
            "kind-instance.lost": "1",
            "pools": "default/chat",
        }
        answer = await admin.submit("/notices/new", "/notices", **typed)
        assert answer.status_code == 200
        assert "whsec_c2hvd24tb25jZQ==" in answer.text and "Webhook pager created" in answer.text
        made = admin.fake.webhooks.webhooks[0]
        assert (made.form, made.kinds, made.pools) == ("slack", ("instance.lost",), ("default/chat",))
        shown = (await admin.http.get("/notices")).text
        assert "https://pager.example.com" in shown and "private" not in shown and "whsec_" not in shown


async def test_a_refused_form_keeps_what_was_typed_but_the_address() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/notices/new", "/notices", **{"name": "pager", "url": "ftp://private", "kind-instance.lost": "1"})
        assert answer.status_code == 422
        assert 'value="pager"' in answer.text and "private" not in answer.text
        assert 'name="kind-instance.lost" type="checkbox" value="1" checked' in answer.text


async def test_a_test_notice_is_sent_and_a_webhook_is_deleted_with_its_notices() -> None:
    async with visitor("admin") as admin:
        assert (await admin.submit("/notices/wh-0/test", "/notices")).headers["location"] == "/notices?webhook=wh-0"
        assert "somebody tests on-call" in (await admin.http.get("/notices?webhook=wh-0")).text
        assert (await admin.submit("/notices/wh-0/delete", "/notices")).headers["location"] == "/notices"
        assert "somebody tests on-call" not in (await admin.http.get("/notices")).text
        assert (await admin.submit("/notices/wh-0/test", "/notices")).status_code == 404


async def test_only_admins_have_the_form() -> None:
    for role, has in (("viewer", False), ("operator", False), ("admin", True)):
        async with visitor(role) as one:
            assert ("Create webhook" in (await one.http.get("/notices")).text) is has


async def test_without_a_webhook_it_is_not_said_that_nothing_happened() -> None:
    async with visitor("admin") as admin:
        admin.fake.webhooks.webhooks.clear()
        admin.fake.webhooks.notices.clear()
        page = (await admin.http.get("/notices")).text
    assert "Notices are made only for webhooks, and there is none." in page
    assert "Nothing has happened" not in page
