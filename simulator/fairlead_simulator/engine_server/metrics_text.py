"""The engine's metrics in Prometheus text format, under vLLM's names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.statistics import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

AnswerCounts = Mapping[tuple[str, str, str], int]
"""Number of HTTP responses, by handler (the path in the route table), method, and class of status such as `2xx`."""


SleepGauges = Mapping[str, int]
"""vLLM's sleep state → 1 if the engine is in this state, else 0."""

AWAKE: SleepGauges = MappingProxyType({"awake": 1, "weights_offloaded": 0, "discard_all": 0})


def render_metrics(engines: Sequence[ServedEngine], model: str, answered: AnswerCounts, awake: SleepGauges = AWAKE) -> bytes:
    """Return all metrics of an instance as text. `engines` has one engine for each data-parallel rank. The caller has
    advanced the engines to the present time.
    """
    by_rank = [_families(_lines(engine, rank, model, awake)) for rank, engine in enumerate(engines)]
    merged = [line for families in zip(*by_rank, strict=True) for line in (families[0][0], *chain(*(each[1:] for each in families)))]
    return "".join((*merged, *_http_lines(answered))).encode("utf-8")


def _families(lines: Iterable[str]) -> list[list[str]]:
    """Return the lines grouped by metric family; each group is a family's header followed by its samples."""
    families: list[list[str]] = []
    for line in lines:
        if line.startswith("#"):
            families.append([])
        families[-1].append(line)
    return families


def _http_lines(answered: AnswerCounts) -> Iterator[str]:
    yield "# HELP http_requests_total HTTP requests answered.\n# TYPE http_requests_total counter\n"
    for (handler, method, status), count in sorted(answered.items()):
        yield f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}\n'


def _lines(engine: ServedEngine, rank: int, model: str, awake: SleepGauges) -> Iterator[str]:
    """Yield the lines of all metric families of one rank: each family's header, then its samples."""
    statistics, settings = engine.statistics, engine.settings
    labels = f'engine="{rank}",model_name="{_escape(model)}"'
    yield from _single("num_requests_running", "gauge", "Requests in the running batch.", labels, engine.instance.running)
    yield from _single("num_requests_waiting", "gauge", "Requests waiting to be scheduled.", labels, engine.instance.waiting)
    yield from _single("kv_cache_usage_perc", "gauge", "Share of KV cache blocks held by requests, 0 to 1.", labels, engine.memory.usage)
    yield from _single(
        "prefix_cache_queries_total", "counter", "Prompt tokens looked up in the cache.", labels, statistics.prefix_queries_tokens
    )
    yield from _single("prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", labels, statistics.prefix_hits_tokens)
    yield from _single("num_preemptions_total", "counter", "Requests preempted for lack of blocks.", labels, statistics.preemptions)
    yield from _single("prompt_tokens_total", "counter", "Prompt tokens of prefilled requests.", labels, statistics.prompt_tokens)
    cached = statistics.prompt_tokens_cached
    yield from _single("prompt_tokens_cached_total", "counter", "Prompt tokens of prefilled requests that the cache had.", labels, cached)
    yield _header("prompt_tokens_by_source_total", "counter", "Prompt tokens by where they came from.")
    external = statistics.prompt_tokens_external
    sources = {"local_compute": statistics.prompt_tokens - cached, "local_cache_hit": cached - external, "external_kv_transfer": external}
    for source, count in sources.items():
        yield f'vllm:prompt_tokens_by_source_total{{{labels},source="{source}"}} {count}\n'
    yield from _single("generation_tokens_total", "counter", "Tokens generated.", labels, statistics.generation_tokens)
    yield _header("request_success_total", "counter", "Requests ended, by reason.")
    for reason, count in statistics.ended.items():
        yield f'vllm:request_success_total{{finished_reason="{reason}",{labels}}} {count}\n'
    for name, text, histogram in (
        ("time_to_first_token_seconds", "Arrival to first token.", statistics.time_to_first_token),
        ("inter_token_latency_seconds", "Time between tokens of a request.", statistics.inter_token_latency),
        ("e2e_request_latency_seconds", "Arrival to last token.", statistics.end_to_end),
        ("request_queue_time_seconds", "Arrival to first scheduling.", statistics.queue_time),
        ("request_prefill_time_seconds", "First scheduling to first token.", statistics.prefill_time),
        ("request_decode_time_seconds", "First token to last token.", statistics.decode_time),
        ("request_time_per_output_token_seconds", "Mean time between a request's tokens.", statistics.time_per_output_token),
        ("request_prompt_tokens", "Prompt tokens of a request.", statistics.request_prompt_tokens),
        ("request_generation_tokens", "Tokens generated for a request.", statistics.request_generation_tokens),
        ("nixl_xfer_time_seconds", "Transfer of a prompt's KV blocks from another engine.", statistics.transfer_time),
        ("nixl_bytes_transferred", "Bytes of a transfer.", statistics.transfer_bytes),
    ):
        yield _header(name, "histogram", text)
        yield from _histogram(name, histogram, labels)
    yield from _single("nixl_num_failed_transfers_total", "counter", "KV blocks not fetched.", labels, statistics.transfers_failed)
    yield from _single(
        "nixl_num_kv_expired_reqs_total", "counter", "Prompts whose blocks were not fetched.", labels, statistics.transfers_expired
    )
    yield _header("engine_sleep_state", "gauge", "1 for the state of sleep that the engine is in.")
    for state, value in awake.items():
        yield f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}} {value}\n'
    yield _header("cache_config_info", "gauge", "Shape of the KV cache.")
    info = f'block_size="{settings.block_tokens}",num_gpu_blocks="{settings.capacity_blocks}",enable_prefix_caching="True",engine="{rank}"'
    yield f"vllm:cache_config_info{{{info}}} 1\n"


def _header(name: str, kind: str, text: str) -> str:
    return f"# HELP vllm:{name} {text}\n# TYPE vllm:{name} {kind}\n"


def _single(name: str, kind: str, text: str, labels: str, value: float) -> Iterator[str]:
    yield _header(name, kind, text)
    yield f"vllm:{name}{{{labels}}} {value}\n"


def _histogram(name: str, histogram: Histogram, labels: str) -> Iterator[str]:
    below = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        below += count
        yield f'vllm:{name}_bucket{{le="{bound}",{labels}}} {below}\n'
    yield f'vllm:{name}_bucket{{le="+Inf",{labels}}} {histogram.count}\n'
    yield f"vllm:{name}_count{{{labels}}} {histogram.count}\nvllm:{name}_sum{{{labels}}} {histogram.total}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
