"""The page of a canary: verdict and evidence in words, and the buttons that stop it and let it go on."""

from typing import Any

import pytest

from fairlead_client.resources.canaries import CanaryEstimate
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.canary import amount, between

PAGE = "/pools/default/chat/canary"


async def test_each_step_says_its_verdict_and_its_evidence_in_words() -> None:
    async with visitor("viewer") as viewer:
        text = " ".join((await viewer.http.get(PAGE)).text.split())
    assert "Step with 25 % of the sessions" in text
    assert "Step with 10 % of the sessions" in text
    assert "between 1 % less and 12 % more" in text
    assert "at least 12 % less" in text
    assert "nothing is certain yet" in text
    assert "the time to first token is open after 90 pairs" in text
    assert "Cache hits are judged from" in text


@pytest.mark.parametrize(("paused", "words"), [(False, "Stop the rollout…"), (True, "Let the rollout go on…")])
async def test_the_button_plans_to_stop_or_to_go_on_and_keeps_the_other_bounds(paused: bool, words: str) -> None:
    rollout: dict[str, Any] = {"canary": {}, "maxSurge": 3, "paused": paused}
    async with visitor("operator") as operator:
        operator.fake.world.spec_changes[CHAT] = {"rollout": rollout}
        assert words in (await operator.http.get(PAGE)).text
        answer = await operator.submit("/pools/default/chat/plans", kind="rollout", paused=str(not paused).lower(), maxSurge="3")
        assert answer.status_code == 303
        shown = (await operator.http.get(answer.headers["location"])).text
        assert "paused" in shown


async def test_a_viewer_cannot_press_it_and_without_a_canary_there_is_none() -> None:
    async with visitor("viewer") as viewer:
        assert "Stop the rollout" not in (await viewer.http.get(PAGE)).text
        viewer.fake.world.spec_changes[CHAT] = {"rollout": {"canary": {}}}
        assert "<button disabled>Stop the rollout…" in (await viewer.http.get(PAGE)).text
        assert f'href="{PAGE}"' in (await viewer.http.get("/pools/default/chat")).text


@pytest.mark.parametrize(
    ("change", "ratio", "words"),
    [(0.084, True, "8 % more"), (-0.02, False, "2 points less"), (0.01, False, "1 point more"), (0.001, True, "the same")],
)
def test_a_change_is_said_in_words(change: float, ratio: bool, words: str) -> None:
    one = CanaryEstimate(metric="ttft", is_ratio=ratio, pairs=1, change=change, low=None, high=change, verdict="wait")  # type: ignore[arg-type]
    assert amount(change, one) == words
    assert between(one) == f"at most {words}"
