"""What an engine says of itself: its metrics page, in the names of its kind and version, and its list of models.

vLLM renamed the gauge of its KV cache with version 0.10; the first name that is present counts. An engine with several
data-parallel ranks has a line for each: requests and cache sizes are summed, and of the used shares the largest counts.
SGLang may repeat a rank's figures, for each of its parallel processes and for each priority; the largest is the rank's.

What moves with an engine's steps is read by rank. A step of vLLM that ends no part of an answer, as most of a long
prompt's do, moves only the used share of its KV cache: it counts tokens and steps by what its answers get
(`AsyncLLM._run_output_handler`). SGLang repeats its figures for up to 30 s after it has become idle
(`Scheduler.check_memory`), so that it is given so much more time.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from fairlead.routing.knowledge.progress import LEAST_SECONDS, Movement
from fairlead.tables import KV_USAGE_METRICS

_NEWLINE = 10
_MOST = 1e15
"""What is larger counts nothing that an engine has."""
_CACHE_LABEL = re.compile(rb'(?:^|,)(block_size|num_gpu_blocks|kv_cache_size_tokens)="([0-9]{1,15})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames:
    """What one kind of engine calls its figures."""

    kv_usage: tuple[str, ...]
    """Newest first."""
    running: str
    waiting: str
    rank: bytes
    """Label of the data-parallel rank."""
    cache_tokens: str = ""
    """Gauge of the tokens that fit into a rank's KV cache."""
    cache_config: str = ""
    """Gauge whose labels tell it instead."""
    steps: tuple[str, ...]
    """Counters that move with its steps, and with nothing that its HTTP server does alone."""
    sleep: str = ""
    """Gauge by `sleep_state` that tells whether it is awake."""
    least_seconds: float = LEAST_SECONDS
    """Least time in which something moves while it works."""


_VLLM = MetricNames(
    kv_usage=(KV_USAGE_METRICS["vllm"], "vllm:gpu_cache_usage_perc"),
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    rank=b"engine",
    cache_config="vllm:cache_config_info",
    steps=(
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
        "vllm:iteration_tokens_total_count",
        "vllm:prefix_cache_queries_total",
        "vllm:num_preemptions_total",
    ),
    sleep="vllm:engine_sleep_state",
)
METRIC_NAMES: Mapping[str, MetricNames] = MappingProxyType(
    {
        "simulated": _VLLM,
        "vllm": _VLLM,
        "sglang": MetricNames(
            kv_usage=(KV_USAGE_METRICS["sglang"],),
            running="sglang:num_running_reqs",
            waiting="sglang:num_queue_reqs",
            rank=b"dp_rank",
            cache_tokens="sglang:max_total_num_tokens",
            steps=("sglang:realtime_tokens_total", "sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
            least_seconds=30.0 + LEAST_SECONDS,
        ),
    }
)
"""By `engine.type`."""


class PageUnreadable(Exception):
    """The answer is no list of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePage:
    """What an engine's metrics say; None where they say nothing."""

    kv_usage: float | None = None
    """The used share of the KV cache as it stands there, maybe not from 0 to 1."""
    running: int | None = None
    waiting: int | None = None
    kv_cache_tokens: int | None = None
    movement: Mapping[str, Movement] = field(default_factory=dict)
    """What moves with its steps, by rank; nothing where it shows none of that, or sleeps."""


def read_page(page: bytes, engine_type: str, kv_usage_metric: str) -> EnginePage:
    """Read a metrics page. The declared name of the KV cache's gauge has older names if it is the engine's own."""
    names = METRIC_NAMES[engine_type]
    gauges = names.kv_usage if kv_usage_metric in names.kv_usage else (kv_usage_metric,)
    return EnginePage(
        kv_usage=next((value for name in gauges if (value := _largest(page, name)) is not None), None),
        running=_sum(page, names.running, names.rank),
        waiting=_sum(page, names.waiting, names.rank),
        kv_cache_tokens=(_sum(page, names.cache_tokens, names.rank) if names.cache_tokens else _configured(page, names.cache_config))
        or None,
        movement=_movement(page, names, gauges),
    )


def _movement(page: bytes, names: MetricNames, gauges: Sequence[str]) -> dict[str, Movement]:
    if names.sleep and any(b'sleep_state="awake"' in labels and not value for labels, value in _samples(page, names.sleep)):
        return {}
    counts = [_by_rank(page, name, names.rank) for name in names.steps]
    if not any(counts):
        return {}
    running = _by_rank(page, names.running, names.rank)
    used = [_by_rank(page, name, names.rank) for name in gauges]
    return {
        rank.decode(errors="replace"): Movement(
            running=round(requests),
            counts=tuple(found.get(rank, 0.0) for found in counts),
            gauges=(requests, *(found.get(rank, 0.0) for found in used)),
        )
        for rank, requests in running.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldModels:
    """The models that an engine serves, and the `engine.type` it is by its own word."""

    names: tuple[str, ...]
    engine_type: str = "vllm"


def read_models(answer: bytes) -> ToldModels:
    """What `GET /v1/models` tells. Raises PageUnreadable."""
    try:
        models = _MODELS.decode(answer).data
    except msgspec.MsgspecError as error:
        raise PageUnreadable(str(error)) from None
    is_sglang = any(model.owned_by == "sglang" for model in models)
    return ToldModels(names=tuple(model.id for model in models), engine_type="sglang" if is_sglang else "vllm")


class _Model(msgspec.Struct):
    id: str
    owned_by: object = None


class _Models(msgspec.Struct):
    data: Sequence[_Model]


_MODELS = msgspec.json.Decoder(_Models)


def _samples(page: bytes, name: str) -> Iterator[tuple[bytes, float]]:
    """Labels and value of every sample of exactly this name in a Prometheus text page; without what is no number."""
    wanted = name.encode()
    place = page.find(wanted)
    while place >= 0:
        begins, behind = place == 0 or page[place - 1] == _NEWLINE, place + len(wanted)
        if begins and page[behind : behind + 1] in (b" ", b"{"):  # only then is the rest of the line looked at
            end = page.find(b"\n", behind)
            labels, _, told = page[behind : end if end >= 0 else len(page)].rpartition(b"}")
            fields = told.split()
            try:
                value = float(fields[0]) if fields else math.nan
            except ValueError:
                value = math.nan
            if not math.isnan(value):
                yield labels.removeprefix(b"{"), value
        place = page.find(wanted, place + 1)


def _largest(page: bytes, name: str) -> float | None:
    return max((value for _, value in _samples(page, name)), default=None)


def _by_rank(page: bytes, name: str, rank: bytes) -> dict[bytes, float]:
    """Each rank's value: the largest of its lines."""
    label = re.compile(rb"(?:^|,)" + rank + rb'="([^"]*)"')
    ranks: dict[bytes, float] = {}
    for labels, value in _samples(page, name):
        if 0 <= value < _MOST:
            found = label.search(labels)
            of = found[1] if found else b""
            ranks[of] = max(value, ranks.get(of, 0.0))
    return ranks


def _sum(page: bytes, name: str, rank: bytes) -> int | None:
    """The sum over the ranks."""
    ranks = _by_rank(page, name, rank)
    return round(sum(ranks.values())) if ranks else None


def _configured(page: bytes, name: str) -> int:
    """Tokens that the KV caches of all ranks hold, by the labels of this gauge."""
    total = 0
    for labels, _ in _samples(page, name):
        told = {name: int(value) for name, value in _CACHE_LABEL.findall(labels)}
        total += told.get(b"kv_cache_size_tokens") or told.get(b"block_size", 0) * told.get(b"num_gpu_blocks", 0)
    return total
