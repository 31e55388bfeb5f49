"""The page of gateway keys: a secret is shown once, typed values stay, and viewers cannot change anything."""

import re
from dataclasses import replace
from html import unescape

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
        assert "write a whole number without a sign, or nothing" in answer.text
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
    assert "250,000.00 EUR a day" in text
    assert text.count("budget nearly used up<") == 1
    assert re.search("budget used up</span></div>\\s*<div class=.muted.>opens again <time", text)


async def test_a_key_is_edited_in_its_row_and_keeps_its_secret() -> None:
    async with visitor("operator") as operator:
        assert 'href="/keys?edit=k-0"' in (await operator.http.get("/keys")).text
        assert 'action="/keys/k-0"' in (await operator.http.get("/keys?edit=k-0")).text
        form = {"name": "team-y", "pools": "default/chat", "requests_per_minute": "30", "tokens_per_minute": "", "explain": "1"}
        assert (await operator.submit("/keys/k-0", **form)).status_code == 303
        row = next(one for one in (await operator.http.get("/keys")).text.split("<tr>") if "team-y" in one)
        assert "default/chat" in row
        assert "30 requests" in row
        assert "tokens</td>" not in row
        assert "flk_shown-once" not in row


async def test_a_forms_numbers_have_their_thousands_apart_and_are_read_as_they_are_shown() -> None:
    async with visitor("operator") as operator:
        shown = (await operator.http.get("/keys?edit=k-2")).text
        assert 'value="250,000.00"' in shown and 'value="4,000,000.00"' in shown
        form = {"name": "big", "budget_day": "1,250,000.00", "budget_currency": "EUR", "tokens_per_minute": "2,000,000"}
        assert (await operator.submit("/keys/k-2", **form)).status_code == 303
        page = (await operator.http.get("/keys?edit=k-2")).text
        assert "1,250,000.00 EUR a day" in page and "2,000,000 tokens a minute" in page
        assert 'value="1,250,000.00"' in page and 'value="2,000,000"' in page
        assert (await operator.submit("/keys/k-2", name="big", tokens_per_minute="2,5")).status_code == 422


async def test_two_people_who_edit_a_key_at_once_keep_each_others_changes() -> None:
    async with visitor("operator") as operator:
        opened = opened_form((await operator.http.get("/keys?edit=k-0")).text)
        assert (await operator.submit("/keys/k-0", **opened | {"tokens_per_minute": "9,000"})).status_code == 303
        refused = await operator.submit("/keys/k-0", **opened | {"requests_per_minute": "many"})
        assert refused.status_code == 422
        again = opened_form(refused.text)
        assert again["requests_per_minute"] == "many"
        assert (await operator.submit("/keys/k-0", **again | {"requests_per_minute": "30"})).status_code == 303
        row = next(one for one in (await operator.http.get("/keys")).text.split("<tr>") if "edit=k-0" in one)
        assert "9,000 tokens a minute" in row
        assert "30 requests a minute" in row


async def test_a_key_beyond_the_first_page_is_edited_on_its_page() -> None:
    async with visitor("operator") as operator:
        first = operator.fake.gateway_keys[0]
        operator.fake.gateway_keys[:0] = [replace(first, id=f"k-new-{place}", revoked_at=None) for place in range(50)]
        later = re.search('href="([^"]*)" rel="next"', (await operator.http.get("/keys")).text)
        assert later is not None
        second = (await operator.http.get(unescape(later[1]))).text
        opener = re.search('href="(/keys[?]edit=k-0[^"]*)"', second)
        assert opener is not None
        edited = (await operator.http.get(unescape(opener[1]))).text
        sent_to = re.search('action="(/keys/k-0[?][^"]*)"', edited)
        assert sent_to is not None
        refused = await operator.submit(unescape(sent_to[1]), **opened_form(edited) | {"days": "soon"})
        assert refused.status_code == 422
        assert 'value="soon"' in refused.text
        changed = await operator.submit(unescape(sent_to[1]), **opened_form(edited) | {"name": "renamed"})
        assert "renamed" in (await operator.http.get(changed.headers["location"])).text


def opened_form(page: str) -> dict[str, str]:
    """Return the values of the form that edits a key, including hidden ones, as a browser would send them."""
    form = page.split('id="h-edit"', 1)[1].split("</form>", 1)[0]
    inputs = [re.sub(r"\s+", " ", one) for one in re.findall("<input [^>]*>", form)]
    named = {re.search('name="([^"]*)"', one)[1]: one for one in inputs if "checkbox" not in one or " checked" in one}  # type: ignore[index]  # each input has a name
    return {name: unescape(value[1]) for name, one in named.items() if name != "csrf" and (value := re.search('value="([^"]*)"', one))}


async def test_a_refused_edit_stays_open_in_its_row_with_the_field_marked() -> None:
    async with visitor("operator") as operator:
        answer = await operator.submit("/keys/k-0", name="kept", tokens_per_minute="many")
        assert answer.status_code == 422
        assert 'action="/keys/k-0"' in answer.text
        assert 'value="kept"' in answer.text
        assert answer.text.count('aria-describedby="key-problem"') == 1


async def test_a_rotated_keys_new_secret_is_shown_once_with_the_end_of_the_former_one() -> None:
    async with visitor("operator") as operator:
        answer = (await operator.submit("/keys/k-0/rotate", hours="12")).text
        assert "has a new secret" in answer
        assert "flk_shown-once" in answer
        assert "The former secret is accepted until" in answer
        assert "flk_shown-once" not in (await operator.http.get("/keys")).text
