"""Benchmarks of the control API: an error does not count as a fast answer, and every post has new records."""

from collections.abc import Callable
from functools import partial
from math import inf

import httpx
import msgspec
import pytest
from benchmarks import lists
from benchmarks.store_at_scale import __main__ as scale
from benchmarks.store_at_scale import ingesting
from benchmarks.store_at_scale.questions import Question

from fairlead.reports.batches import ReportBatch


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[httpx.Request], httpx.Response]) -> None:
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(answer)))
    for module in (lists, scale):
        monkeypatch.setattr(module.time, "sleep", lambda _: None)
        monkeypatch.setattr(module, "TIMES", 5)


def test_a_question_that_a_server_error_answers_misses_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(503 if request.url.path == "/slow" and len(asked) > 2 else 200)

    answering(monkeypatch, answer)
    wanted = [Question(group=path, path=path, limit_ms=50.0) for path in ("/slow", "/fast")]
    found = {question.path: p95 for question, _, p95, _ in scale.asked("http://api.test", wanted, lambda: 0.0)}
    assert found["/slow"] == inf
    assert found["/fast"] < 1000
    assert asked == ["/slow"] * 3 + ["/fast"] * 6, "asked no more after the error"


def test_what_lacks_kubernetes_here_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda _: httpx.Response(503))
    wanted = [Question(group="/v1/pools/{namespace}/{name}/rollout", path="/v1/pools/big/p1/rollout", limit_ms=50.0)]
    ((_, _, p95, _),) = scale.asked("http://api.test", wanted, lambda: 0.0)
    assert p95 < 1000


def test_a_path_that_is_not_answered_with_200_says_so_beside_its_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda request: httpx.Response(404 if request.url.path == "/gone" else 200))
    found = lists.measure("http://api.test", ["/here", "/gone"])
    assert {path: one.odd for path, one in found.items()} == {"/here": "", "/gone": " (404)"}


def test_no_load_sample_is_posted_twice_however_long_encoding_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000, 2000))
    monkeypatch.setattr("benchmarks.store_at_scale.ingesting.time.time", lambda: float(next(clock)))
    batches = [msgspec.json.decode(batch, type=ReportBatch) for post in ingesting.posts("loads", "router-0", 3) for batch in post]
    samples = [(one.instance, one.second) for batch in batches for one in batch.loads]
    assert len(samples) == 3 * ingesting.POST
    assert len(set(samples)) == len(samples)
