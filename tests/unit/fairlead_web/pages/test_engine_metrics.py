"""The page of an engine's own metrics: two clicks from the heatmap, grouped, small, and plain where it fails."""

import re

import pytest

from fairlead.engine_metrics import read_metrics
from fairlead_testing.fakes.public_data import engine_pages
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.engine_metrics import MOST_ROWS, figure, rows_of

INSTANCE = INSTANCES[CHAT][0]
PAGE = f"/pools/{CHAT}/instances/{INSTANCE}/metrics"


def told(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("<main", 1)[1]).split())


async def test_the_metrics_are_two_clicks_from_the_heatmap_in_groups_with_a_sentence_each() -> None:
    async with visitor("viewer") as viewer:
        assert f'href="/pools/{CHAT}/instances/{INSTANCE}?' in (await viewer.http.get(f"/pools/{CHAT}/heatmap")).text
        assert f'href="{PAGE}"' in (await viewer.http.get(PAGE.removesuffix("/metrics"))).text
        page = (await viewer.http.get(PAGE)).text
    words = told(page)
    assert re.findall(r'<h2 id="h-group-\d+">([^<]+)', page) == ["Requests", "KV cache", "Latency", "Process"]
    assert "vllm:kv_cache_usage_perc Used share of the KV cache" in words
    assert "engine=0, model_name=Qwen/Qwen3-32B 81.2 %" in words
    assert "900 500 ms ≤ 250 ms ≤ 2.50 s" in words, "observations, mean, median and p95"
    assert "2026-11-21 19:58:12 UTC" in words and "not a number" in words and "1 line of its page could not be read" in words
    assert "&lt;img src=x" in page and "<img src=x" not in page


async def test_a_search_stays_in_the_field_and_in_what_is_read_again() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(f"{PAGE}?q=no+such+text")).text
        assert "No such metric" in page and 'value="no such text"' in page
        found = (await viewer.http.get(f"{PAGE}?q=prefix_cache")).text
        assert f'hx-get="{PAGE}?q=prefix_cache"' in found and "2 metrics with “prefix_cache”" in told(found)


async def test_a_page_without_metrics_is_no_search_without_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pages, "PAGE", "<html>nothing</html>\n")
    async with visitor("viewer") as viewer:
        words = told((await viewer.http.get(PAGE)).text)
    assert "No metric The page at engine.metrics.path has none" in words and "this text" not in words


async def test_an_engine_that_does_not_answer_is_said_and_not_asked_again() -> None:
    async with visitor("viewer") as viewer:
        viewer.fake.world.pods_gone.add(INSTANCE)
        answer = await viewer.http.get(PAGE)
    assert answer.status_code == 200
    assert "the engine does not answer the control API" in answer.text and 'hx-trigger="every' not in answer.text


async def test_the_page_of_sixty_four_ranks_keeps_to_its_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = "".join(f'{name}{{engine="{rank}"}} {rank}\n' for name in ("a", "b", "c", "d") for rank in range(64))
    monkeypatch.setattr(engine_pages, "PAGE", engine_pages.PAGE + ranks)
    async with visitor("admin") as admin:
        page = (await admin.http.get(PAGE)).text
    assert len(re.findall(r"<[a-z]", page)) <= 2_500
    _, left_out = rows_of(read_metrics(engine_pages.PAGE.encode()).families)
    assert left_out == 256 + 12 - MOST_ROWS and f"{left_out} more values" in told(page)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("vllm:kv_cache_usage_perc", 0.5, "50.0 %"),
        ("a_seconds", 0.0421, "42 ms"),
        ("a", 1_047_076_864.0, "1,047,076,864"),
        ("a", 0.25, "0.25"),
        ("a", None, "not a number"),
    ],
)
def test_a_value_has_the_unit_of_its_name(name: str, value: float | None, words: str) -> None:
    assert figure(name, value) == words
