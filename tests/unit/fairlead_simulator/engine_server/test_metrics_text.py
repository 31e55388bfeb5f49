from prometheus_client.parser import text_string_to_metric_families

from fairlead_router.engines.engine_pages import read_page
from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.metrics_text import render_metrics
from fairlead_simulator.engine_server.requests import Generation
from fairlead_simulator.engine_server.statistics import EngineStatistics


def an_engine(wall_seconds: float = 1.0, kv_tokens: int = 1_198_372) -> ServedEngine:
    settings = EngineSettings(
        mode="prefill_priority",
        block_tokens=16,
        kv_tokens=kv_tokens,
        max_batched_tokens=1,
        prefill=PrefillCost(per_token=1 / 6250),
        decode=DecodeCost(fixed=0.02, per_context_token=7.2e-8, per_sequence=0.00005),
    )
    return ServedEngine(settings, bytes_per_token=4, max_waiting=8, statistics=EngineStatistics(wall_seconds=wall_seconds))


def samples(engine: ServedEngine, model: str) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(render_metrics([engine], model, {("/v1/x", "POST", "2xx"): 4}).decode()):
        for sample in family.samples:
            labels = sample.labels
            found[sample.name, labels.get("le") or labels.get("finished_reason") or labels.get("source") or labels.get("status") or ""] = (
                sample.value
            )
            assert family.name in ("vllm:cache_config_info", "http_requests") or labels["model_name"] == model
    return found


def test_metrics_parse_and_say_what_the_engine_did() -> None:
    engine = an_engine(wall_seconds=0.5, kv_tokens=16_000)
    for _ in range(2):
        engine.submit(Generation(prompt=b"p" * 25_000, input_tokens=6250, output_tokens=3), 0.0)
    running = Generation(prompt=b"q" * 32_000, input_tokens=8000, output_tokens=50)
    engine.submit(running, 0.0)
    engine.advance(2.4)
    found = samples(engine, 'tiny "model" \\ 1')
    assert found["vllm:num_requests_running", ""] == 1
    assert found["vllm:num_requests_waiting", ""] == 0
    assert found["vllm:kv_cache_usage_perc", ""] == 0.501
    assert found["vllm:prefix_cache_queries_total", ""] == 20_500
    assert found["vllm:prefix_cache_hits_total", ""] == 6240
    assert found["vllm:prompt_tokens_total", ""] == 20_500
    assert found["vllm:prompt_tokens_cached_total", ""] == 6240
    assert found["vllm:prompt_tokens_by_source_total", "local_compute"] == 20_500 - 6240
    assert found["vllm:prompt_tokens_by_source_total", "local_cache_hit"] == 6240
    assert found["http_requests_total", "2xx"] == 4
    assert found["vllm:generation_tokens_total", ""] == 3 + 3 + engine.instance.generated(running)
    assert found["vllm:request_success_total", "length"] == 2
    assert found["vllm:request_success_total", "abort"] == 0
    assert found["vllm:num_preemptions_total", ""] == 0
    assert found["vllm:cache_config_info", ""] == 1


def test_histograms_are_cumulative_and_in_wall_seconds() -> None:
    engine = an_engine(wall_seconds=0.1)
    engine.submit(Generation(prompt=b"p", input_tokens=6250, output_tokens=11), 0.0)
    engine.advance(10.0)
    found = samples(engine, "m")
    name = "vllm:time_to_first_token_seconds"
    assert found[f"{name}_bucket", "0.08"] == 0
    assert found[f"{name}_bucket", "0.1"] == found[f"{name}_bucket", "+Inf"] == found[f"{name}_count", ""] == 1
    assert found[f"{name}_sum", ""] == 0.1
    assert found["vllm:inter_token_latency_seconds_count", ""] == 10
    assert found["vllm:e2e_request_latency_seconds_count", ""] == 1
    assert found["vllm:request_time_per_output_token_seconds_count", ""] == 1
    assert found["vllm:request_prompt_tokens_sum", ""] == 6250
    assert found["vllm:request_generation_tokens_bucket", "10.0"] == 0
    assert found["vllm:request_generation_tokens_bucket", "20.0"] == 1


def test_a_pooled_prompt_is_computed_and_generates_nothing() -> None:
    engine = an_engine()
    engine.submit(Generation(prompt=b"p" * 400, input_tokens=100, output_tokens=1, finish_reason="stop", pooled=True), 0.0)
    engine.advance(1.0)
    found = samples(engine, "m")
    assert found["vllm:request_success_total", "stop"] == 1
    assert found["vllm:prompt_tokens_total", ""] == 100
    assert found["vllm:generation_tokens_total", ""] == found["vllm:request_generation_tokens_sum", ""] == 0


def test_each_rank_has_its_own_lines_below_one_header() -> None:
    first, second = an_engine(), an_engine()
    second.submit(Generation(prompt=b"p" * 400, input_tokens=100, output_tokens=9), 0.0)
    second.advance(0.0)
    page = render_metrics([first, second], "m", {}).decode()
    assert page.count("# TYPE vllm:num_requests_running gauge") == page.count("# TYPE vllm:time_to_first_token_seconds histogram") == 1
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert [(one.labels["engine"], one.value) for one in families["vllm:num_requests_running"].samples] == [("0", 0), ("1", 1)]
    assert {one.labels["engine"] for one in families["vllm:time_to_first_token_seconds"].samples} == {"0", "1"}
    assert read_page(page.encode(), "simulated", "vllm:kv_cache_usage_perc").ranks.keys() == {0, 1}
