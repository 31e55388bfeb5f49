"""The runner of simulations, with a store that is pretended and a process that says one line."""

import sys
from collections.abc import Sequence

import pytest

from fairlead_api.services.errors import StoreUnavailable
from fairlead_api.services.simulations.running import Claimed, Traffic
from fairlead_api.simulating import Simulating
from fairlead_client.resources.simulations import EngineModel, SimulatedPolicy, SimulationResult, TraceRequest
from fairlead_client.simulation_jobs import SimulatedTarget

TARGET = SimulatedTarget(
    engine=EngineModel.DUALMAP_7B,
    instances=2,
    prefill_tokens_per_second=6250.0,
    kv_cache_tokens=100_000,
    prefills_in_flight=1,
    anchors=1,
    session_ttl_seconds=600.0,
    early_rejection="Disabled",
    headroom=1.0,
    slo_ttft_seconds=5.0,
    slo_tpot_seconds=0.1,
)
REFUSING = (sys.executable, "-c", """print('{"error": "no such engine"}')""")


class AllDone(Exception):
    """Ends the runner, which looks for simulations for ever."""


class OneSimulation:
    """A store with one simulation of three requests, which ends the runner once that one has ended."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self.problem = ""

    async def claim(self, runner: str) -> Claimed | None:
        if self.problem:
            raise AllDone
        policies = [SimulatedPolicy(policy="fairlead"), SimulatedPolicy(policy="ear")]
        return Claimed(id="1", pool_id=1, policies=policies, rates=[1.0], seed=0, target=TARGET, window=None)

    async def traffic(self, claimed: Claimed) -> Traffic:
        row = TraceRequest(timestamp=0.0, input_length=1, output_length=1, hash_ids=[1])
        return Traffic.uploaded([row] * 3)

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        if total is not None:
            self.totals.append(total)
        return True

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        raise StoreUnavailable("it does not end well")

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None:
        self.problem = why


async def test_what_is_to_be_done_is_counted_when_it_begins_as_more_may_have_come_since_it_was_asked_for() -> None:
    store = OneSimulation()
    with pytest.raises(AllDone):
        await Simulating(store, "runner", 1, REFUSING).run()
    assert (store.totals, store.problem) == ([3 * 2], "no such engine")
