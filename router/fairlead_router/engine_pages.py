"""What an engine says of itself: its metrics page, in the names of vLLM's versions, and its list of models.

vLLM renamed the gauge of its KV cache with version 0.10; the first name that is present counts. An engine with several
data-parallel ranks has a line for each: requests and cache sizes are summed, and of the used shares the largest counts.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
RUNNING, WAITING, CACHE_CONFIG = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:cache_config_info"

_CACHE_LABEL = re.compile(rb'(?:^|,)(block_size|num_gpu_blocks|kv_cache_size_tokens)="([0-9]{1,15})"')


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


def read_page(page: bytes, kv_usage_metric: str) -> EnginePage:
    """Read a metrics page. The declared name of the KV cache's gauge has older names if it is vLLM's own."""
    names = KV_USAGE if kv_usage_metric in KV_USAGE else (kv_usage_metric,)
    usage = next((value for name in names if (value := _largest(page, name)) is not None), None)
    return EnginePage(kv_usage=usage, running=_sum(page, RUNNING), waiting=_sum(page, WAITING), kv_cache_tokens=_cache_tokens(page))


def read_models(answer: bytes) -> tuple[str, ...]:
    """The models that `GET /v1/models` names. Raises PageUnreadable."""
    try:
        return tuple(model.id for model in _MODELS.decode(answer).data)
    except msgspec.MsgspecError as error:
        raise PageUnreadable(str(error)) from None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: Sequence[_Model]


_MODELS = msgspec.json.Decoder(_Models)


def _samples(page: bytes, name: str) -> Iterator[tuple[bytes, float]]:
    """Labels and value of every sample of exactly this name in a Prometheus text page; without what is no number."""
    wanted = name.encode()
    place = page.find(wanted)
    while place >= 0:
        end = page.find(b"\n", place)
        line = page[place : end if end >= 0 else len(page)]
        after = line[len(wanted) :]
        if (place == 0 or page[place - 1 : place] == b"\n") and after[:1] in (b" ", b"{"):
            labels, _, told = after.rpartition(b"}")
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


def _sum(page: bytes, name: str) -> int | None:
    values = [value for _, value in _samples(page, name) if 0 <= value < 1e12]
    return round(sum(values)) if values else None


def _cache_tokens(page: bytes) -> int | None:
    """Tokens that the KV caches of all ranks hold."""
    total = 0
    for labels, _ in _samples(page, CACHE_CONFIG):
        told = {name: int(value) for name, value in _CACHE_LABEL.findall(labels)}
        total += told.get(b"kv_cache_size_tokens") or told.get(b"block_size", 0) * told.get(b"num_gpu_blocks", 0)
    return total or None
