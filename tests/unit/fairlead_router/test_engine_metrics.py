"""Reading one gauge from a Prometheus page."""

import pytest

from fairlead_router.engine_metrics import gauge_value

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
