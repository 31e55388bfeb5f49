"""The test request: from the pool's page, with answer, headers and decision beside; a refusal keeps what was typed."""

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor

TEST = f"/pools/{CHAT}/test"


async def test_the_pools_page_has_the_form_and_the_answer_has_all_beside_it() -> None:
    async with visitor("operator") as operator:
        assert f'action="{TEST}"' in (await operator.http.get(f"/pools/{CHAT}")).text
        page = (await operator.submit(TEST, prompt="hi <there>", max_tokens="8", key="flk_secret")).text
        assert "Echo: hi &lt;there&gt;" in page
        assert "x-fairlead-decision" in page
        assert "0af7651916cd43dd8448eb211c80319c" in page
        assert 'href="/decisions/d-0002"' in page
        assert "flk_secret" not in page


async def test_a_refusal_stands_at_its_field_and_what_was_typed_stays() -> None:
    async with visitor("operator") as operator:
        answer = await operator.submit(TEST, prompt="kept", max_tokens="many")
        assert answer.status_code == 422
        assert "kept</textarea>" in answer.text
        assert 'name="max_tokens" value="many" autocomplete="off" spellcheck="false" aria-invalid="true"' in answer.text
        empty = await operator.submit(TEST, prompt="", max_tokens="8")
        assert (empty.status_code, "write 1 to 100,000 characters" in empty.text) == (422, True)


async def test_a_viewer_sees_why_it_cannot_send() -> None:
    async with visitor("viewer") as viewer:
        assert "This needs the role operator" in (await viewer.http.get(TEST)).text
        assert (await viewer.submit(TEST, prompt="hi", max_tokens="8")).status_code == 403
