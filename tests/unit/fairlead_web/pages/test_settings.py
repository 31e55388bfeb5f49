"""The page of settings: tokens and login links shown once, preferences kept in cookies."""

from fairlead_testing.running.web_client import visitor


async def test_a_new_tokens_secret_is_shown_once() -> None:
    async with visitor("admin") as admin:
        made = await admin.submit("/settings/tokens", name="ci", role="viewer", days="30")
        assert "flt_shown_once" in made.text
        assert made.headers["cache-control"] == "no-store"
        assert "flt_shown_once" not in (await admin.http.get("/settings")).text
        link = await admin.submit("/settings/login-links", subject="grace", role="viewer")
        assert "http://127.0.0.1:8080/login?token=flt_new" in link.text
        wrong = await admin.submit("/settings/tokens", name="ci", role="viewer", days="900")
        assert wrong.status_code == 422
        assert "write a whole number from 1 to 365" in wrong.text


async def test_preferences_are_kept_in_cookies_and_unknown_ones_ignored() -> None:
    async with visitor() as operator:
        answer = await operator.submit("/settings", theme="dark", time="utc", shortcuts="maybe", next="//evil.example")
        assert answer.headers["location"] == "/"
        cookies = answer.headers.get_list("set-cookie")
        assert [cookie.split(";")[0] for cookie in cookies] == ["fairlead-theme=dark", "fairlead-time=utc"]
        page = await operator.http.get("/help")
        assert all(attribute in page.text for attribute in ('data-theme="dark"', 'data-time="utc"', 'data-shortcuts="on"'))
