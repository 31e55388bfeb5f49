"""Reads an engine's metrics page and prepares it for people: metric families in groups, and histograms as counts, means
and percentiles.

Everything read is bounded (`fairlead.plausibility`), each line is read once, and unreadable lines are counted instead
of passed on. The format is Prometheus' text exposition. The meanings of the metrics were taken from vLLM 0.32
(`vllm/v1/metrics/loggers.py`, and its metrics page). Pure.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fairlead.plausibility import shown

MOST_FAMILIES = 500
MOST_SAMPLES = 40
"""Maximum number of samples listed per family. If a family has more samples, the first samples are listed."""
MOST_LABELS = 16
MOST_LINES = 50_000
"""Maximum number of lines read from the start of a page, since each line may take a kilobyte of memory. A page of 4 MiB
has this many lines of 84 bytes.
"""
LONGEST_LINE = 4096
"""Maximum length of a line in characters; longer lines are not read."""
LONGEST_HELP = 300
MOST_VALUE = 1e21
"""Largest plausible value of a sample. It is about the number of floating point operations that a GPU does in years."""
_CREATED = "_created"
"""Name ending of the gauges that hold the creation times of counters."""
_PARTS = ("_bucket", "_sum", "_count")
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,199})(?:\{(.*)\})?[ \t]+([^ \t]{1,64})(?:[ \t]+-?[0-9]{1,20})?[ \t]*")
_LABEL = re.compile(r'[ ,]*([a-zA-Z_][a-zA-Z0-9_]{0,99})="((?:[^"\\]|\\.)*)"')
_ABOUT = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]{0,199})(?: (.*))?")
_ESCAPED = {"\\n": " ", '\\"': '"', "\\\\": "\\"}

GROUPS = ("Requests", "KV cache", "Tokens", "Latency", "Moving caches", "Speculative decoding", "Server", "Process", "Others")
"""Groups of metrics, in the order in which they are shown."""
_GROUP_OF = (
    ("Speculative decoding", re.compile("spec_decode|spec_accept")),
    ("Moving caches", re.compile("nixl|external_prefix_cache|kv_transfer|kv_offload|kvcache_transfer")),
    ("Latency", re.compile("latency|_time_seconds|time_to_first_token|time_per_output_token|_seconds$")),
    ("KV cache", re.compile("cache|token_usage|preemption|max_total_num_tokens")),
    ("Tokens", re.compile("tokens|throughput")),
    ("Requests", re.compile("request|rejection|_reqs|engine_sleep|params_|lora")),
)
MEANINGS = {
    "vllm:num_requests_running": "Requests in the batches that the engine computes now.",
    "vllm:num_requests_waiting": "Requests that the engine holds in its own queue; routers queue before it, so it should be near 0.",
    "vllm:num_requests_waiting_by_reason": "Requests in the engine's own queue, by what they wait for.",
    "vllm:engine_sleep_state": "1 for the state in which the engine is: awake, or asleep without its weights or without its cache.",
    "vllm:kv_cache_usage_perc": "Used share of the KV cache, 0 to 1. Near 1, requests wait or are preempted.",
    "vllm:prefix_cache_queries": "Prompt tokens that were looked up in the prefix cache.",
    "vllm:prefix_cache_hits": "Looked-up prompt tokens that were in the prefix cache; divided by the queries, they give the engine's own hit rate.",
    "vllm:external_prefix_cache_queries": "Prompt tokens that were looked up at other engines or in a store.",
    "vllm:external_prefix_cache_hits": "Looked-up prompt tokens that were fetched from other engines or the store.",
    "vllm:num_preemptions": "Requests thrown out of a batch because the KV cache was full; each of them is computed again.",
    "vllm:prompt_tokens": "Prompt tokens that were prefilled, cached ones included.",
    "vllm:prompt_tokens_cached": "Prompt tokens that were not computed, as their blocks were cached.",
    "vllm:prompt_tokens_by_source": "Prompt tokens by where their blocks came from.",
    "vllm:generation_tokens": "Tokens that were generated.",
    "vllm:request_success": "Requests that ended, by the reason of their end.",
    "vllm:admission_rejections": "Requests that the engine itself refused.",
    "vllm:iteration_tokens_total": "Tokens of one step: how full the batches are.",
    "vllm:request_prompt_tokens": "Prompt tokens of a request.",
    "vllm:request_generation_tokens": "Generated tokens of a request.",
    "vllm:request_params_max_tokens": "`max_tokens` as clients asked for it.",
    "vllm:request_prefill_kv_computed_tokens": "Prompt tokens of a request that were computed and not cached.",
    "vllm:time_to_first_token_seconds": "From a request's arrival at the engine to its first token; queues of routers are not in it.",
    "vllm:inter_token_latency_seconds": "Time between two tokens of an answer.",
    "vllm:request_time_per_output_token_seconds": "Mean time of a token after the first one, request by request.",
    "vllm:e2e_request_latency_seconds": "A whole request at the engine.",
    "vllm:request_queue_time_seconds": "Time in the engine's own queue.",
    "vllm:request_prefill_time_seconds": "From the first step of a request to its first token.",
    "vllm:request_decode_time_seconds": "From a request's first token to its last one.",
    "vllm:request_inference_time_seconds": "Prefill and decode together.",
    "vllm:cache_config_info": "The size of the KV cache, in the labels: blocks, and tokens of a block.",
    "process_resident_memory_bytes": "Main memory of the HTTP server's process; the GPU's is not in it.",
    "process_cpu_seconds": "Processor time of the HTTP server's process.",
}
"""Meanings of the best known metrics, keyed by their names without `_total`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """A value with its labels. For a histogram or summary, `value` is the number of observations.

    For a histogram, `p50` and `p95` are the upper ends of the buckets that contain these percentiles, so the true
    percentiles may be lower; None if that bucket has no upper end. `value` is None if it is not a finite, plausible
    number.
    """

    labels: dict[str, str]
    value: float | None
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """A metric under the engine's own name. `kind` is counter, gauge, histogram, summary or untyped. `told` is the
    engine's own description of the metric, and `meaning` is Fairlead's description (empty for metrics that Fairlead
    does not know). If the family has very many samples, only the first samples are listed.
    """

    name: str
    kind: str
    group: str
    told: str
    meaning: str
    samples: list[MetricSample]
    samples_in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """The families of a page, grouped. `unreadable` counts the lines left out, including those beyond MOST_LINES and
    the families beyond MOST_FAMILIES.
    """

    families: list[MetricFamily]
    families_in_all: int
    unreadable: int


@dataclass(slots=True)
class _Family:
    """The content of a family as read so far: samples by labels, and a histogram's parts by their labels without
    `le`.
    """

    kind: str = "untyped"
    told: str = ""
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)
    parts: dict[tuple[tuple[str, str], ...], dict[str, float]] = field(default_factory=dict)
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def has_parts(self) -> bool:
        return self.kind in ("histogram", "summary")


def read_metrics(page: bytes, search: str = "") -> MetricsPage:
    """Return the families of a metrics page. Only families whose name, description or labels contain the text `search`
    are included; upper and lower case are not distinguished.
    """
    found: dict[str, _Family] = {}
    lines = [line for line in page.decode(errors="replace").split("\n") if line]
    unreadable = sum(not _read(line, found) for line in lines[:MOST_LINES]) + len(lines[MOST_LINES:])
    wanted = search.casefold()
    made = (_shown(name, one) for name, one in found.items() if one.samples or one.parts)
    families = [one for one in made if _is_wanted(one, wanted)]
    ordered = sorted(families, key=lambda one: GROUPS.index(one.group))
    return MetricsPage(families=ordered[:MOST_FAMILIES], families_in_all=len(families), unreadable=unreadable)


def _read(line: str, found: dict[str, _Family]) -> bool:
    """Record a line of the page; return False if the line is not in the format or too long."""
    line = line.rstrip("\r")
    if not line.strip():
        return True
    if len(line) > LONGEST_LINE:
        return False
    if line.startswith("#"):
        return _note(line, found)
    sample = _LINE.fullmatch(line)
    labels = None if sample is None else _labels(sample[2] or "")
    if sample is None or labels is None:
        return False
    _keep(sample[1], labels, _number(sample[3]), found)
    return True


def _note(line: str, found: dict[str, _Family]) -> bool:
    """Record the type or description of a family from a comment line; other comments are ignored."""
    about = _ABOUT.fullmatch(line)
    if about is None:
        return True
    family = found.setdefault(about[2], _Family())
    if about[1] == "TYPE":
        family.kind = shown(about[3] or "untyped", 20)
    else:
        family.told = shown(about[3] or "", LONGEST_HELP)
    return True


def _labels(text: str) -> dict[str, str] | None:
    """Return the labels by name; None if the text is not a valid list of labels."""
    found, place, end = dict[str, str](), 0, len(text.rstrip(", "))
    while place < end:
        label = _LABEL.match(text, place)
        if label is None:
            return None
        found[label[1]] = re.sub(r"\\.", lambda one: _ESCAPED.get(one[0], one[0]), label[2])
        place = label.end()
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _keep(name: str, labels: dict[str, str], value: float, found: dict[str, _Family]) -> None:
    """Record a sample. If the sample is a part of a histogram, it is recorded with the histogram."""
    for ending in _PARTS:
        whole = found.get(name.removesuffix(ending)) if name.endswith(ending) else None
        if whole is not None and whole.has_parts:
            edge = labels.pop("le", "")
            key = tuple(labels.items())
            parts = whole.parts.setdefault(key, {})
            if ending == "_bucket":
                whole.buckets.setdefault(key, []).append((_number(edge), value))
            else:
                parts[ending] = value
            return
    family = found.setdefault(name, _Family())
    if family.kind == "summary":
        family.parts.setdefault(tuple((one, is_) for one, is_ in labels.items() if one != "quantile"), {})
    else:
        family.samples[tuple(labels.items())] = value


def _shown(name: str, family: _Family) -> MetricFamily:
    counted = [*(_histogram(key, family) for key in family.parts), *(_single(*one) for one in family.samples.items())]
    plain = name.removesuffix("_total")
    meaning = MEANINGS.get(name) or MEANINGS.get(plain) or ""
    samples = [replace(one, labels=_shown_labels(one.labels)) for one in counted[:MOST_SAMPLES]]
    return MetricFamily(
        name=name, kind=family.kind, group=group_of(plain), told=family.told, meaning=meaning, samples=samples, samples_in_all=len(counted)
    )


def _single(labels: Iterable[tuple[str, str]], value: float) -> MetricSample:
    return MetricSample(labels=dict(labels), value=_plausible(value))


def _histogram(key: tuple[tuple[str, str], ...], family: _Family) -> MetricSample:
    parts, buckets = family.parts[key], sorted(one for one in family.buckets.get(key, ()) if not math.isnan(one[0]))
    count, total = _plausible(parts.get("_count", math.nan)), _plausible(parts.get("_sum", math.nan))
    rising = all(low[1] <= high[1] for low, high in pairwise(buckets))
    p50, p95 = (_edge(buckets, count, share) if rising and count else None for share in (0.5, 0.95))
    mean = _plausible(total / count) if count and total is not None else None
    return MetricSample(labels=dict(key), value=count, mean=mean, p50=p50, p95=p95)


def _edge(buckets: Iterable[tuple[float, float]], count: float, share: float) -> float | None:
    """Return the upper end of the bucket in which the cumulative count reaches this share of the observations."""
    found = next((edge for edge, until in buckets if until >= share * count), math.inf)
    return found if math.isfinite(found) else None


def _plausible(value: float) -> float | None:
    return value if abs(value) <= MOST_VALUE else None  # a comparison with NaN is False


def _shown_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: shown(value) for name, value in list(labels.items())[:MOST_LABELS]}


def group_of(name: str) -> str:
    """Return the group of a metric by its name without `_total`."""
    _, colon, rest = name.partition(":")
    if not colon:
        return "Server" if name.startswith(("http", "api_")) else "Process" if name.startswith(("process_", "python_")) else "Others"
    return next((group for group, pattern in _GROUP_OF if pattern.search(rest)), "Others")


def _is_wanted(family: MetricFamily, wanted: str) -> bool:
    """Return whether the family contains the searched text. Without a text, return True for every family except the
    creation times of counters.
    """
    if not wanted:
        return not family.name.endswith(_CREATED)
    texts = (family.name, family.told, family.meaning, *(text for one in family.samples for pair in one.labels.items() for text in pair))
    return any(wanted in text.casefold() for text in texts)
