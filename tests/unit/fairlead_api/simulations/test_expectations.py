"""The status of a plan's simulation: its progress, and its figures at the end."""

from dataclasses import replace

from fairlead_api.simulations.expectations import Kept, expectation_of
from fairlead_api.simulations.expected_figures import Recorded, Trialled
from fairlead_api.simulations.plan_changes import RATES, SEEDS
from fairlead_client.resources.expectations import ExpectationState
from fairlead_client.simulation_jobs import JobRun, RunFigures

RUNS = [
    JobRun(number=number, policy="fairlead", parameters={}, rate=rate, seed=seed)
    for number, (seed, rate) in enumerate([(seed, 1.0) for seed in SEEDS for _ in range(2)] + [(SEEDS[0], rate) for rate in RATES])
]
FIGURES = RunFigures(
    number=0,
    requests_per_second=10.0,
    requests=1000,
    served=900,
    failed=0,
    attainment=0.72,
    refused_share=0.1,
    ttft_p50=0.2,
    ttft_p90=1.0,
    ttft_p99=2.0,
    tpot_p90=0.03,
    hit_rate=0.5,
    ideal_hit_rate=0.7,
    migrations=3,
    reroutes=0,
    sessions_moved=2,
)


def test_a_plan_says_how_far_its_simulation_is_and_why_there_is_none() -> None:
    kept = Kept(state="running", error=None, start=None, end=None, done=10, total=6000, runs=RUNS, found=None, notes=[])
    at_work = expectation_of("p1", kept)
    assert (at_work.state, at_work.done, at_work.requests, at_work.figures) == (ExpectationState.RUNNING, 10, 1000, [])
    refused = expectation_of("p1", replace(kept, state="failed", error="3 requests were recorded", total=0, runs=[]))
    assert (refused.state, refused.reason, refused.requests) == (ExpectationState.UNKNOWN, "3 requests were recorded", None)
    assert expectation_of("p1", replace(kept, state="done")).state is ExpectationState.UNKNOWN, "an older version simulated it"
    found = Trialled(figures=[FIGURES] * len(RUNS), recorded=Recorded(), measured_seconds=1800.0)
    done = expectation_of("p1", replace(kept, state="done", found=found))
    assert (done.state, done.measured_seconds, done.seeds, done.rates) == (ExpectationState.DONE, 1800.0, [0, 1], [0.8, 1.25])
