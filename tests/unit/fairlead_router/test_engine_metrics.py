"""Reading one gauge from a Prometheus page."""

import pytest

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engine_metrics import EngineScraper, gauge_value
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.upstream import UpstreamPool
from fairlead_testing.builders.routing_tables import CHAT, routing_table

NAME = "vllm:kv_cache_usage_perc"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"vllm:kv_cache_usage_perc 0.25\n", 0.25),
        (
            b'# HELP vllm:kv_cache_usage_perc share\n# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name="a b"} 0.5\n',
            0.5,
        ),
        (b'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.7 1700000000\n', 0.7),
        (b"vllm:kv_cache_usage_percent 0.9\n", None),
        (b"other_vllm:kv_cache_usage_perc 0.9\n", None),
        (b"vllm:kv_cache_usage_perc NaN\n", None),
        (b"vllm:kv_cache_usage_perc\n", None),
        (b"vllm:kv_cache_usage_perc 0.3", 0.3),
        (b"", None),
    ],
)
def test_the_gauge_is_found_only_under_its_exact_name(page: bytes, expected: float | None) -> None:
    assert gauge_value(page, NAME) == expected


class OnePage(UpstreamPool):
    """Answers every fetch with one page."""

    def __init__(self, page: bytes) -> None:
        super().__init__(lambda: 0.0, connect_seconds=1.0)
        self._page = page

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        return self._page


@pytest.mark.parametrize(("told", "kept"), [(b"0.5", 0.5), (b"-0.1", None), (b"1e300", None), (b"+Inf", None)])
async def test_a_usage_that_cannot_be_is_unknown_and_counted(told: bytes, kept: float | None) -> None:
    metrics = RouterMetrics()
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), metrics, lambda: 0.0)
    pools.apply(routing_table(["127.0.0.1:1"]))
    pool = pools.get(CHAT)
    assert pool is not None
    name = pool.table.engine.kv_usage_metric.encode()
    await EngineScraper(pools, OnePage(name + b" " + told + b"\n"), metrics, lambda: 0.0).scrape()
    assert pool.kv_usage.get("i0") == kept
    assert pool.counters.implausible_usages == (kept is None)
