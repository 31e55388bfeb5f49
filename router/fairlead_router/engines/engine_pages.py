"""Parses an engine's reports about itself: its metrics page, whose metric names depend on the engine's type and
version, and its list of models.

vLLM renamed the gauge of its KV cache with version 0.10. If a metric may have several names, the first name that occurs
on the page is used. An engine with several data-parallel ranks has a sample for each rank. For the engine as a whole,
numbers of requests and cache sizes are summed, and the used share is the largest share of a rank. SGLang may repeat a
rank's samples for each of its parallel processes and each priority; then the largest value is used.

Metrics that change with an engine's steps are read for each rank, to see whether the rank makes progress. Most steps of
a long prompt generate no token. After such a step vLLM changes only the used share of its KV cache, because it counts
tokens and steps by the outputs of its requests (`AsyncLLM._run_output_handler`). SGLang repeats its samples for up to
30 s after it has become idle (`Scheduler.check_memory`), so an SGLang engine counts as stalled 30 s later than others.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from fairlead.plausibility import (
    BLOCK_TOKENS,
    BLOCKS,
    CACHE_TOKENS,
    COUNT,
    MOST_MODELS,
    MOST_RANK_NAME,
    MOST_RANKS,
    PAGE_LEVELS,
    RANK,
    REQUESTS,
    Bound,
    shown,
)
from fairlead.routing.knowledge.progress import LEAST_SECONDS, Movement
from fairlead.tables import KV_USAGE_METRICS
from fairlead_process.json_documents import decode_json

_CACHE_LABEL = re.compile(rb'(?:^|,)(block_size|num_gpu_blocks|kv_cache_size_tokens)="([0-9]+)"')
_CACHE_BOUNDS = {b"block_size": BLOCK_TOKENS, b"num_gpu_blocks": BLOCKS, b"kv_cache_size_tokens": CACHE_TOKENS}
_LONGEST_NUMBER = 64
_LONGEST_RANK = len(str(MOST_RANK_NAME))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames:
    """The metric names of one engine type."""

    kv_usage: tuple[str, ...]
    """Names of the gauge of the used share of the KV cache, from the newest engine version to the oldest."""
    running: str
    waiting: str
    rank: bytes
    """Name of the label that identifies the data-parallel rank."""
    tells_all_ranks: bool
    """Whether the metrics page has samples for every rank that the engine's server can send requests to."""
    cache_tokens: str = ""
    """Name of the gauge of the tokens that fit into a rank's KV cache; empty if there is no such gauge."""
    cache_config: str = ""
    """Name of the gauge whose labels have the size of the KV cache, for an engine type without `cache_tokens`."""
    steps: tuple[str, ...]
    """Names of the counters that change with the engine's steps. HTTP requests alone never change them."""
    sleep: str = ""
    """Name of the gauge whose label `sleep_state` shows whether the engine is awake; empty if there is no such gauge.
    """
    least_seconds: float = LEAST_SECONDS
    """Minimum number of seconds for which a counter must not change before the engine may count as stalled."""


_VLLM = MetricNames(
    kv_usage=(KV_USAGE_METRICS["vllm"], "vllm:gpu_cache_usage_perc"),
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    rank=b"engine",
    tells_all_ranks=True,
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
            tells_all_ranks=False,  # of an engine on several nodes only this node's
            cache_tokens="sglang:max_total_num_tokens",
            steps=("sglang:realtime_tokens_total", "sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
            least_seconds=30.0 + LEAST_SECONDS,
        ),
    }
)
"""Metric names of each engine type, keyed by `engine.type`."""


class PageUnreadable(Exception):
    """An exception: the response is not a list of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The metrics of an engine or of one of its ranks. A metric that the engine does not report is None."""

    kv_usage: float | None = None
    """The used share of the KV cache as the engine reports it; it may be outside 0 to 1."""
    running: int | None = None
    waiting: int | None = None
    kv_cache_tokens: int | None = None
    movement: Movement | None = None
    """The counters that change with the engine's steps; None if the engine reports no such counter, or sleeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePage(EngineFigures):
    """The parsed metrics page of an engine."""

    ranks: Mapping[int, EngineFigures] = field(default_factory=dict)
    """The metrics of each data-parallel rank, by rank index."""
    asleep: bool = False
    """Whether the engine reports that it sleeps: it accepts requests and passes its health probe, but computes
    nothing.
    """
    implausible: str = ""
    """A message about reported values that were dropped because they are impossible; empty if all values are possible.
    """


def read_page(page: bytes, engine_type: str, kv_usage_metric: str) -> EnginePage:
    """Return the parsed metrics page. `kv_usage_metric`: the gauge that the pool declares for the used share of the KV
    cache. If the engine type is known to use this gauge, the gauges of other versions of the engine are read too.
    """
    names = METRIC_NAMES[engine_type]
    gauges = names.kv_usage if kv_usage_metric in names.kv_usage else (kv_usage_metric,)
    label = re.compile(rb"(?:^|,)" + names.rank + rb'="([^"]*)"')
    samples = _Samples(page)
    used = [_by_rank(samples.of(name), label) for name in gauges]
    usage = next((found for found in used if found), {})
    running, waiting = (_by_rank(samples.within(name, REQUESTS), label) for name in (names.running, names.waiting))
    told_sizes = samples.within(names.cache_tokens, CACHE_TOKENS) if names.cache_tokens else samples.configured(names.cache_config)
    sizes = _by_rank(told_sizes, label)
    numbers = samples.ranks({rank for told in (usage, running, waiting) for rank in told if rank})
    asleep = _asleep(samples, names, label)
    movements = _movements(samples, names, label, running, used, asleep)
    return EnginePage(
        kv_usage=max(usage.values(), default=None),
        running=round(sum(running.values())) if running else None,
        waiting=round(sum(waiting.values())) if waiting else None,
        kv_cache_tokens=round(sum(sizes.values())) or None,
        movement=_all_of_them(tuple(movements.values())),
        ranks={
            number: EngineFigures(
                kv_usage=usage.get(rank),
                running=_whole(running.get(rank)),
                waiting=_whole(waiting.get(rank)),
                kv_cache_tokens=_whole(sizes.get(rank)) or None,
                movement=movements.get(rank),
            )
            for number, rank in numbers
        },
        asleep=bool(asleep),
        implausible=samples.faults(),
    )


def fetched_blocks(page: bytes) -> tuple[float, float]:
    """Return two totals for the KV blocks that the engine has fetched from other engines since its start, with vLLM's
    NixlConnector: the bytes of the blocks, and the number of prompt tokens in them.
    """
    samples = _Samples(page)
    size = sum(value for _, value in samples.within("vllm:nixl_bytes_transferred_sum", COUNT))
    by_source = samples.within("vllm:prompt_tokens_by_source_total", COUNT)
    return size, sum(value for labels, value in by_source if b'source="external_kv_transfer"' in labels)


def _asleep(samples: "_Samples", names: MetricNames, label: re.Pattern[bytes]) -> set[bytes]:
    """Return the labels of the ranks that report that they sleep."""
    awake = ((labels, value) for labels, value in samples.of(names.sleep) if b'sleep_state="awake"' in labels) if names.sleep else ()
    return {rank for rank, value in _by_rank(awake, label).items() if not value}


def _movements(
    samples: "_Samples",
    names: MetricNames,
    label: re.Pattern[bytes],
    running: Mapping[bytes, float],
    used: Sequence[Mapping[bytes, float]],
    asleep: Collection[bytes],
) -> dict[bytes, Movement]:
    """Return the step counters of each rank that is awake, by rank label; empty if no rank reports such counters."""
    counts = [_by_rank(samples.within(name, COUNT), label) for name in names.steps]
    if not any(counts):
        return {}
    return {
        rank: Movement(
            running=round(requests),
            counts=tuple(found.get(rank, 0.0) for found in counts),
            gauges=(requests, *(found.get(rank, 0.0) for found in used)),
        )
        for rank, requests in running.items()
        if rank not in asleep
    }


def _all_of_them(ranks: Sequence[Movement]) -> Movement | None:
    """Return the step counters of the whole engine, summed over its ranks; None if there are no ranks."""
    if len(ranks) <= 1:
        return next(iter(ranks), None)
    return Movement(
        running=sum(one.running for one in ranks),
        counts=tuple(map(sum, zip(*(one.counts for one in ranks), strict=True))),
        gauges=tuple(map(sum, zip(*(one.gauges for one in ranks), strict=True))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldModels:
    """The names of the models that an engine serves, and the `engine.type` that its response indicates."""

    names: tuple[str, ...]
    engine_type: str = "vllm"
    implausible: str = ""
    """A message about model names that were dropped; empty if none was dropped."""


def read_models(answer: bytes) -> ToldModels:
    """Return the models in the response of `GET /v1/models`. Raises PageUnreadable."""
    try:
        models = decode_json(answer, _MODELS, deepest=PAGE_LEVELS).data
    except msgspec.MsgspecError as error:
        raise PageUnreadable(shown(str(error))) from None
    is_sglang = any(model.owned_by == "sglang" for model in models[:MOST_MODELS])
    more = f"it lists {len(models)} models; {MOST_MODELS} are read" if len(models) > MOST_MODELS else ""
    names = tuple(model.id for model in models[:MOST_MODELS])
    return ToldModels(names=names, engine_type="sglang" if is_sglang else "vllm", implausible=more)


class _Model(msgspec.Struct):
    id: str
    owned_by: object = None


class _Models(msgspec.Struct):
    data: Sequence[_Model]


_MODELS = msgspec.json.Decoder(_Models)


class _Samples:
    """The samples of a Prometheus text page, by name. It records which samples are impossible. Reading the samples of a
    name costs one pass over the page, whatever the page contains.
    """

    def __init__(self, page: bytes) -> None:
        self._page = b"\n" + page
        self._faults: dict[str, str] = {}

    def of(self, name: str) -> Iterator[tuple[bytes, float]]:
        """Yield the labels and the value of every sample with exactly this name, except samples whose values are not
        numbers.
        """
        page, wanted = self._page, b"\n" + name.encode()
        place = page.find(wanted)
        while place >= 0:
            behind = place + len(wanted)
            end = page.find(b"\n", behind)
            end = len(page) if end < 0 else end
            if page[behind : behind + 1] in (b" ", b"{"):
                labels, _, told = page[behind:end].rpartition(b"}")
                value = _number(told)
                if not math.isnan(value):
                    yield labels.removeprefix(b"{"), value
            place = page.find(wanted, end)

    def within(self, name: str, bound: Bound) -> Iterator[tuple[bytes, float]]:
        """Yield the labels and the value of each sample whose value is within `bound`. Record other values as
        impossible, except zeros.
        """
        for labels, value in self.of(name):
            if bound.holds(value):
                yield labels, value
            elif value:
                self._faults.setdefault(name, bound.words(name, value))

    def configured(self, name: str) -> Iterator[tuple[bytes, float]]:
        """Yield two values for each sample of this gauge: the sample's labels, and the number of tokens that the KV
        cache can hold, computed from these labels (0 if the labels do not have it).
        """
        for labels, _ in self.of(name):
            told = {label: float(value[:_LONGEST_NUMBER]) for label, value in _CACHE_LABEL.findall(labels)}
            for label, value in tuple(told.items()):
                if value and not self._holds(f"{label.decode()} of {name}", value, _CACHE_BOUNDS[label]):
                    del told[label]
            tokens = told.get(b"kv_cache_size_tokens") or told.get(b"block_size", 0) * told.get(b"num_gpu_blocks", 0)
            if not tokens or self._holds(name, tokens, CACHE_TOKENS):
                yield labels, tokens

    def ranks(self, names: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """Return pairs of a data-parallel rank's index and its label, in the order of the indexes."""
        numbers = {
            int(name): name for name in names if name.isdigit() and len(name) <= _LONGEST_RANK and self._holds("a rank", int(name), RANK)
        }
        if len(numbers) > MOST_RANKS:
            self._faults["ranks"] = f"it has {len(numbers)} data-parallel ranks; {MOST_RANKS} are read"
        return sorted(numbers.items())[:MOST_RANKS]

    def faults(self) -> str:
        """Return a message about the impossible samples; empty if there are none."""
        return "; ".join(self._faults.values())

    def _holds(self, name: str, value: float, bound: Bound) -> bool:
        if bound.holds(value):
            return True
        self._faults.setdefault(name, bound.words(name, value))
        return False


def _number(told: bytes) -> float:
    """Return the number at the beginning of a sample's value; NaN if there is no number."""
    fields = told.split(None, 1)
    try:
        return float(fields[0][:_LONGEST_NUMBER]) if fields else math.nan
    except ValueError:
        return math.nan


def _by_rank(samples: Iterable[tuple[bytes, float]], label: re.Pattern[bytes]) -> dict[bytes, float]:
    """Return the largest value of each rank, keyed by the rank's value of `label`. Samples without this label have the
    key b"".
    """
    ranks: dict[bytes, float] = {}
    for labels, value in samples:
        found = label.search(labels)
        rank = found[1] if found else b""
        ranks[rank] = max(value, ranks.get(rank, value))
    return ranks


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
