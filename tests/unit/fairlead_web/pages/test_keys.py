"""The page of gateway keys: a secret is shown once, what was typed stays, and viewers only look."""

from fairlead_testing.running.web_client import visitor


async def test_a_new_keys_secret_is_shown_once() -> None:
    async with visitor("operator") as operator:
        form = {"name": "team-x", "pools": "default/chat, default/code", "models": "", "days": "30", "requests_per_minute": "60"}
        made = await operator.submit("/keys/new", **form)
        assert made.status_code == 200
        assert "flk_shown-once" in made.text
        later = (await operator.http.get("/keys")).text
        assert "flk_shown-once" not in later
        assert "team-x" in later
        assert "default/chat, default/code" in later


async def test_what_cannot_be_used_is_said_and_what_was_typed_stays() -> None:
    async with visitor("operator") as operator:
        answer = await operator.submit("/keys/new", name="team-x", days="soon")
        assert answer.status_code == 422
        assert "write a whole number, or nothing" in answer.text
        assert 'value="team-x"' in answer.text


async def test_a_key_that_never_expires_stays_so_in_a_refused_form() -> None:
    async with visitor("operator") as operator:
        assert 'max="3650" value="90"' in (await operator.http.get("/keys")).text
        refused = (await operator.submit("/keys/new", name="team-x", days="", requests_per_minute="many")).text
        assert 'max="3650" value=""' in refused


async def test_a_key_is_revoked_and_a_viewer_cannot() -> None:
    async with visitor("operator") as operator:
        await operator.submit("/keys/new", name="team-x")
        assert (await operator.submit("/keys/k-2/revoke")).status_code == 303
        assert (await operator.http.get("/keys")).text.count(">revoked<") == 2
    async with visitor("viewer") as viewer:
        assert "Revoke</button>" not in (await viewer.http.get("/keys")).text
        assert (await viewer.submit("/keys/k-0/revoke")).status_code == 403


async def test_a_keys_last_use_and_last_day_are_shown() -> None:
    async with visitor("viewer") as viewer:
        text = (await viewer.http.get("/keys")).text
    assert "18,204 requests" in text
    assert "41,300,512 + 2,950,077 tokens" in text
    assert "120 rejected-key-requests" in text
    assert text.count(">never<") == 1
