"""The web UI's metrics: requests by route and status, problems of the API, and open live pages."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_web.frame.metrics import LIVE, Measured, WebMetrics

Send = Callable[[Any], Awaitable[None]]


def app(route: str | None, status: int, during: Callable[[], None] = lambda: None) -> Any:
    async def answer(scope: Any, receive: Any, send: Send) -> None:
        if route is not None:
            scope["state"]["route"] = route
        await send({"type": "http.response.start", "status": status, "headers": []})
        during()
        await send({"type": "http.response.body", "body": b""})

    return answer


async def asked(metrics: WebMetrics, inner: Any) -> None:
    times = iter((10.0, 10.3))

    async def nothing(*_: Any) -> Any:
        return None

    await Measured(inner, metrics, lambda: next(times))({"type": "http", "method": "GET", "path": "/x"}, nothing, nothing)


def value(metrics: WebMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(("route", "shown"), [("/pools/{name}", "/pools/{name}"), (None, "other")])
async def test_a_request_counts_by_the_route_and_not_by_its_address(route: str | None, shown: str) -> None:
    metrics = WebMetrics()
    await asked(metrics, app(route, 200))
    seconds = value(metrics, "fairlead_web_request_seconds_sum", method="GET", route=shown, status="200")
    assert seconds == pytest.approx(0.3)


async def test_a_live_page_counts_while_it_is_open_and_not_as_a_request() -> None:
    metrics, seen = WebMetrics(), []
    await asked(metrics, app(LIVE, 200, lambda: seen.append(value(metrics, "fairlead_web_live_streams"))))
    assert (seen, value(metrics, "fairlead_web_live_streams")) == ([1.0], 0.0)
    assert value(metrics, "fairlead_web_request_seconds_count", method="GET", route=LIVE, status="200") is None
