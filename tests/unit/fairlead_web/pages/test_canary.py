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
    assert "at most 12 % less" in text
    assert "nothing is certain yet" in text
    assert "no verdict on the time to first token after 90 pairs" in text
    assert "judging cache hits begins <time" in text


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


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (None, None, "nothing is certain yet"),
        (-0.12, None, "at most 12 % less"),
        (0.12, None, "at least 12 % more"),
        (None, -0.12, "at least 12 % less"),
        (None, 0.12, "at most 12 % more"),
        (0.001, None, "not less"),
        (None, 0.001, "not more"),
        (-0.12, 0.04, "between 12 % less and 4 % more"),
        (0.0, 0.04, "between no change and 4 % more"),
        (0.0, 0.001, "no change"),
    ],
)
def test_what_lies_beyond_doubt_is_said_in_words(low: float | None, high: float | None, words: str) -> None:
    one = CanaryEstimate(metric="ttft", is_ratio=True, pairs=1, change=0.0, low=low, high=high, verdict="wait")  # type: ignore[arg-type]
    assert between(one) == words


async def test_a_look_of_the_judge_reaches_an_open_page() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(PAGE)).text
    live = page[page.index('id="steps" data-live-refresh="state tick"') :]
    assert live.index("Step with 25 % of the sessions") < live.index("Step with 10 % of the sessions")
