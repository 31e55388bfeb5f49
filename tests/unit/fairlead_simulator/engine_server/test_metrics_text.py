from prometheus_client.parser import text_string_to_metric_families

from fairlead_simulator.engine_requests import EngineRequest, EngineSettings
from fairlead_simulator.engine_server.metrics_text import render_metrics
from fairlead_simulator.engine_statistics import EngineStatistics
from fairlead_simulator.engines import Engine

SECOND = 1_000_000_000


def samples(engine: Engine, model: str) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(render_metrics(engine, model).decode()):
        for sample in family.samples:
            found[sample.name, sample.labels.get("le") or sample.labels.get("finished_reason") or ""] = sample.value
            assert family.name == "vllm:cache_config_info" or sample.labels["model_name"] == model
    return found


def test_metrics_parse_and_say_what_the_engine_did() -> None:
    engine = Engine(EngineSettings(kv_cache_tokens=16_000), EngineStatistics(seconds_per_nanosecond=0.5e-9))
    for name in ("a", "b"):
        engine.submit(EngineRequest(id=name, prompt=b"p" * 25_000, prompt_tokens=6250, max_tokens=3), 0)
    running = engine.submit(EngineRequest(id="c", prompt=b"q" * 32_000, prompt_tokens=8000, max_tokens=50), 0)
    engine.advance(24 * SECOND // 10)
    found = samples(engine, 'tiny "model" \\ 1')
    assert found["vllm:num_requests_running", ""] == 1
    assert found["vllm:num_requests_waiting", ""] == 0
    assert found["vllm:kv_cache_usage_perc", ""] == 0.501
    assert found["vllm:prefix_cache_queries_total", ""] == 20_500
    assert found["vllm:prefix_cache_hits_total", ""] == 6240
    assert found["vllm:prompt_tokens_total", ""] == 20_500
    assert found["vllm:generation_tokens_total", ""] == 3 + 3 + engine.generated(running)
    assert found["vllm:request_success_total", "length"] == 2
    assert found["vllm:request_success_total", "abort"] == 0
    assert found["vllm:num_preemptions_total", ""] == 0
    assert found["vllm:cache_config_info", ""] == 1


def test_histograms_are_cumulative_and_in_wall_seconds() -> None:
    engine = Engine(EngineSettings(), EngineStatistics(seconds_per_nanosecond=0.1e-9))
    engine.submit(EngineRequest(id="a", prompt=b"p", prompt_tokens=6250, max_tokens=11), 0)
    engine.advance(10 * SECOND)
    found = samples(engine, "m")
    name = "vllm:time_to_first_token_seconds"
    assert found[f"{name}_bucket", "0.08"] == 0
    assert found[f"{name}_bucket", "0.1"] == found[f"{name}_bucket", "+Inf"] == found[f"{name}_count", ""] == 1
    assert found[f"{name}_sum", ""] == 0.1
    assert found["vllm:inter_token_latency_seconds_count", ""] == 10
    assert found["vllm:e2e_request_latency_seconds_count", ""] == 1
