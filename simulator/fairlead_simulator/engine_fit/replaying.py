"""Replays records through the engine model. Each recorded request arrives at the recorded time, on the recorded engine,
with the recorded number of cached tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead_client.resources.engine_fits import EngineCosts
from fairlead_simulator.engine_fit.records import ServedRecord
from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.requests import EngineRequest
from fairlead_simulator.engine_model.settings import EngineSettings

Seconds = NDArray[np.float64]

_ENDLESS_TOKENS = 2**50
_BLOCK_TOKENS = 16


@dataclass(slots=True, kw_only=True, eq=False)
class RecordedRequest(EngineRequest):
    """A request whose number of cached tokens is given by its record."""

    cached_tokens: int


class RecordedMemory:
    """An engine memory in which every request fits, and in which each request finds as many cached tokens as were
    recorded.
    """

    capacity = _ENDLESS_TOKENS // _BLOCK_TOKENS
    available = capacity
    usage = 0.0

    def hit_tokens(self, request: RecordedRequest) -> int:
        return 0 if request.generated else request.cached_tokens

    def loaded_tokens(self, request: RecordedRequest, hit_tokens: int) -> int:
        return 0

    def take_in(self, request: RecordedRequest, hit_tokens: int, reserve: int) -> bool:
        return True

    def allocate(self, blocks: int) -> None: ...

    def computed(self, request: RecordedRequest) -> None: ...

    def let_go(self, request: RecordedRequest, stored_tokens: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """The TTFT and the TPOT of each record according to the model, in seconds. The TPOT is 0 if the record has no
    TPOT.
    """

    ttft: Seconds
    tpot: Seconds


def settings_of(costs: EngineCosts) -> EngineSettings:
    """Return the settings of an engine with unlimited memory and these costs."""
    return EngineSettings(
        mode="chunked",
        block_tokens=_BLOCK_TOKENS,
        kv_tokens=_ENDLESS_TOKENS,
        max_batched_tokens=costs.max_batched_tokens,
        prefill=prefill_of(costs),
        decode=decode_of(costs),
    )


def prefill_of(costs: EngineCosts) -> PrefillCost:
    """Return the prefill part of the costs."""
    return PrefillCost(
        fixed=costs.prefill_fixed,
        per_token=costs.prefill_per_token,
        per_context=costs.prefill_per_context,
        per_pair=costs.prefill_per_pair,
    )


def decode_of(costs: EngineCosts) -> DecodeCost:
    """Return the decode part of the costs."""
    return DecodeCost(fixed=costs.decode_fixed, per_context_token=costs.decode_per_context_token, per_sequence=costs.decode_per_sequence)


def replay(records: Sequence[ServedRecord], costs: EngineCosts) -> Replayed:
    """Return the TTFT and TPOT of each record that the model computes with these costs. The records must be in order of
    time.
    """
    settings = settings_of(costs)
    by_engine: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        by_engine.setdefault(record.engine, []).append(place)
    found = Replayed(np.zeros(len(records)), np.zeros(len(records)))
    for engine, places in by_engine.items():
        for place, request in zip(places, _served(engine, [records[place] for place in places], settings), strict=True):
            found.ttft[place] = request.first_token_at - records[place].at + costs.overhead_seconds
            if records[place].tpot is not None:
                found.tpot[place] = (request.finished_at - request.first_token_at) / (request.output_tokens - 1)
    return found


def _served(engine: str, records: Sequence[ServedRecord], settings: EngineSettings) -> list[RecordedRequest]:
    instance: Instance[RecordedRequest] = Instance(engine, settings, RecordedMemory())
    requests = []
    for record in records:
        _run_until(instance, record.at)
        request = RecordedRequest(input_tokens=record.prompt_tokens, output_tokens=record.output_tokens, cached_tokens=record.cached_tokens)
        requests.append(request)
        instance.submit(request, record.at)
    _run_until(instance, inf)
    return requests


def _run_until(instance: Instance[RecordedRequest], at: float) -> None:
    while instance.ends_at is not None and instance.ends_at <= at:
        instance.step_ended(instance.ends_at)


def alone_seconds(record: ServedRecord, costs: EngineCosts) -> float:
    """Return the TTFT in seconds that the record's request would have on an otherwise idle engine."""
    prefill, seconds, done = prefill_of(costs), costs.overhead_seconds, record.cached_tokens
    while done < record.prompt_tokens:
        tokens = min(costs.max_batched_tokens, record.prompt_tokens - done)
        done += tokens
        seconds += prefill.seconds(tokens, done)
    return seconds
