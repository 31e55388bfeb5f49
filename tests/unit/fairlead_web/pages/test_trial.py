"""The test request on the pool's page, with answer, headers and decision; a refusal keeps the typed values."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead_client.client import ControlApi
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.trials import TrialAnswer
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages import trial

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


def answered(monkeypatch: pytest.MonkeyPatch, headers: Sequence[tuple[str, str]]) -> None:
    """Let each test request be answered with these headers, and with a decision that no router has reported yet."""

    async def answer(*_: object) -> TrialAnswer:
        given: TrialAnswer = example(TrialAnswer)
        return replace(given, headers=list(headers), decision="d-unknown")

    monkeypatch.setattr(ControlApi, "send_test_request", answer)


async def test_a_decision_is_said_to_be_kept_only_if_the_router_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LOOK_SECONDS", 0.0)
    async with visitor("operator") as operator:
        answered(monkeypatch, [("x-fairlead-decision-kept", "true")])
        kept = (await operator.submit(TEST, prompt="hi", max_tokens="8")).text
        assert 'href="/decisions/d-unknown"' in kept and "is not kept. Routers" not in kept
        for headers in ([], [("x-fairlead-decision-kept", "false; over the limit")]):
            answered(monkeypatch, headers)
            other = (await operator.submit(TEST, prompt="hi", max_tokens="8")).text
            assert 'href="/decisions/d-unknown"' not in other and "is not kept. Routers" in other


async def test_a_kept_decision_is_awaited_until_the_router_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LOOK_SECONDS", 0.0)
    answered(monkeypatch, [("x-fairlead-decision-kept", "true")])
    looked, read = [], ControlApi.decision

    async def reported_late(api: ControlApi, _: str) -> RoutingDecision:
        looked.append(1)
        return await read(api, "d-unknown" if len(looked) < 3 else "d-0002")

    monkeypatch.setattr(ControlApi, "decision", reported_late)
    async with visitor("operator") as operator:
        page = (await operator.submit(TEST, prompt="hi", max_tokens="8")).text
    assert (len(looked), "All candidates and their scores" in page) == (3, True)
