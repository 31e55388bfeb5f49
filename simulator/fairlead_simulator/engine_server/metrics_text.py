"""The engine's metrics in Prometheus text format, under vLLM's names."""

from collections.abc import Iterator

from fairlead_simulator.engine_statistics import Histogram
from fairlead_simulator.engines import Engine

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def render_metrics(engine: Engine, model: str) -> bytes:
    """All metrics of `engine`, which has been advanced to now."""
    return "".join(_lines(engine, model)).encode("utf-8")


def _lines(engine: Engine, model: str) -> Iterator[str]:
    statistics, settings = engine.statistics, engine.settings
    labels = f'engine="0",model_name="{_escape(model)}"'
    yield _single("num_requests_running", "gauge", "Requests in the running batch.", labels, engine.running_count)
    yield _single("num_requests_waiting", "gauge", "Requests waiting to be scheduled.", labels, engine.waiting_count)
    yield _single("kv_cache_usage_perc", "gauge", "Share of KV cache blocks held by requests, 0 to 1.", labels, engine.blocks.usage)
    yield _single(
        "prefix_cache_queries_total", "counter", "Prompt tokens looked up in the cache.", labels, statistics.prefix_queries_tokens
    )
    yield _single("prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", labels, statistics.prefix_hits_tokens)
    yield _single("num_preemptions_total", "counter", "Requests preempted for want of blocks.", labels, statistics.preemptions)
    yield _single("prompt_tokens_total", "counter", "Prompt tokens of prefilled requests.", labels, statistics.prompt_tokens)
    yield _single("generation_tokens_total", "counter", "Tokens generated.", labels, statistics.generation_tokens)
    yield _header("request_success_total", "counter", "Requests ended, by reason.")
    for reason, count in statistics.finished.items():
        yield f'vllm:request_success_total{{finished_reason="{reason}",{labels}}} {count}\n'
    for name, text, histogram in (
        ("time_to_first_token_seconds", "Arrival to first token.", statistics.time_to_first_token),
        ("inter_token_latency_seconds", "Time between tokens of a request.", statistics.inter_token_latency),
        ("e2e_request_latency_seconds", "Arrival to last token.", statistics.end_to_end),
        ("request_queue_time_seconds", "Arrival to first scheduling.", statistics.queue_time),
        ("request_prefill_time_seconds", "First scheduling to first token.", statistics.prefill_time),
        ("request_decode_time_seconds", "First token to last token.", statistics.decode_time),
    ):
        yield _header(name, "histogram", text)
        yield from _histogram(name, histogram, labels)
    yield _header("cache_config_info", "gauge", "Shape of the KV cache.")
    info = f'block_size="{settings.block_tokens}",num_gpu_blocks="{settings.capacity_blocks}",enable_prefix_caching="True",engine="0"'
    yield f"vllm:cache_config_info{{{info}}} 1\n"


def _header(name: str, kind: str, text: str) -> str:
    return f"# HELP vllm:{name} {text}\n# TYPE vllm:{name} {kind}\n"


def _single(name: str, kind: str, text: str, labels: str, value: float) -> str:
    return f"{_header(name, kind, text)}vllm:{name}{{{labels}}} {value}\n"


def _histogram(name: str, histogram: Histogram, labels: str) -> Iterator[str]:
    below = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        below += count
        yield f'vllm:{name}_bucket{{le="{bound}",{labels}}} {below}\n'
    yield f'vllm:{name}_bucket{{le="+Inf",{labels}}} {histogram.count}\n'
    yield f"vllm:{name}_count{{{labels}}} {histogram.count}\nvllm:{name}_sum{{{labels}}} {histogram.total}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
