"""A job of the control API in the simulator: equal numbers for an equal job, on the pool's own engines."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from fairlead.instances import Role
from fairlead.pools import parse_spec
from fairlead.scaling.specs import RatioSpec, ScalingSpec
from fairlead.tables import ModelledFacts, RoutingTable
from fairlead_client.resources.simulations import EngineModel, TraceRequest
from fairlead_client.simulation_jobs import (
    PARTS,
    Autoscaled,
    JobLine,
    JobRun,
    PoolChange,
    RoleRange,
    RunFigures,
    SimulatedTarget,
    SimulationJob,
    decode_job,
    decode_run,
    encode_line,
)
from fairlead_simulator import what_if
from fairlead_simulator.engine_model.presets import PRESETS
from fairlead_simulator.errors import WorkloadImpossible
from fairlead_simulator.experiments import cells
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, plan_jobs
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.what_if import changes_of, engine_of, parts_by_session, parts_by_time, run_job, workload_of
from fairlead_testing.builders.served_records import COSTS

TARGET = SimulatedTarget(
    engine=EngineModel.VLLM_8B,
    instances=2,
    prefill_tokens_per_second=20_000.0,
    kv_cache_tokens=200_000,
    prefills_in_flight=1,
    anchors=160,
    session_ttl_seconds=1800.0,
    early_rejection="Disabled",
    headroom=1.0,
    slo_ttft_seconds=2.0,
    slo_tpot_seconds=0.1,
)


def conversations(sessions: int = 21, turns: int = 4) -> list[TraceRequest]:
    """Return sessions that take turns, each turn with the whole conversation before it."""
    return [
        TraceRequest(
            timestamp=1000.0 * (turn * sessions + session),
            input_length=1024 * (turn + 1),
            output_length=40,
            hash_ids=[session * 100 + block for block in range(2 * (turn + 1))],
            session_id=f"s{session}",
        )
        for turn in range(turns)
        for session in range(sessions)
    ]


def lines_of(job: SimulationJob, *policies: str) -> list[JobLine]:
    """Return the reported lines of a run of each policy, at twice the rate."""
    runs = [JobRun(number=number, policy=policy, parameters={}, rate=2.0) for number, policy in enumerate(policies)]
    lines: list[JobLine] = []
    run_job(decode_job(encode_line(job)), [decode_run(encode_line(run)) for run in runs], lines.append)
    return lines


def a_job(seed: int = 7) -> SimulationJob:
    return SimulationJob(requests=conversations(), weight=1.0, target=TARGET, seed=seed)


def test_the_same_job_gives_the_same_numbers_also_when_its_runs_are_divided() -> None:
    together = [line.figures for line in lines_of(a_job(), "round-robin", "fairlead") if line.figures]
    assert together == [line.figures for line in lines_of(a_job(), "round-robin", "fairlead") if line.figures]
    (alone,) = [line.figures for line in lines_of(a_job(), "fairlead") if line.figures]
    assert replace(alone, number=1) == together[1]
    assert together[1].hit_rate > together[0].hit_rate, "sessions find their prefix where they were"
    assert together[0].requests_per_second == pytest.approx(2.0, rel=0.02)


def test_every_request_is_told_as_done_once() -> None:
    job = a_job()
    assert sum(line.done for line in lines_of(job, "round-robin", "fairlead")) == 2 * len(job.requests)
    too_long = replace(job.requests[-1], input_length=500_000, hash_ids=[])
    job = replace(job, requests=[*job.requests[:-1], too_long])
    lines = lines_of(job, "round-robin", "fairlead")
    assert sum(line.done for line in lines) == 2 * len(job.requests)
    assert lines[0].notes[0].startswith("1 requests are left out")


def host_caches_of(job: SimulationJob) -> tuple[RunFigures, int]:
    """Return the figures of a run that tries a host cache, and the number of requests reported as done."""
    lines: list[JobLine] = []
    asked = JobRun(number=3, policy="fairlead", parameters={}, rate=1.0, host_cache_tokens=800_000)
    run_job(decode_job(encode_line(job)), [decode_run(encode_line(asked))], lines.append)
    (found,) = [line.figures for line in lines if line.figures]
    return found, sum(line.done for line in lines)


def test_a_host_cache_is_tried_by_reuse_distances_and_a_simulation() -> None:
    job = replace(a_job(), target=replace(TARGET, instances=1, kv_cache_tokens=20_000))
    found, done = host_caches_of(job)
    assert (found.number, done) == (3, len(job.requests))
    assert found.host_cache is not None and found.host_cache.is_confirmed
    assert found.host_cache.predicted > 0.3, "each turn finds what the one before has left"


@pytest.mark.parametrize(
    "job",
    [
        replace(a_job(), weight=4.0),
        replace(a_job(), target=replace(TARGET, engine=EngineModel.DUALMAP_7B)),
        replace(a_job(), target=replace(TARGET, instances=0, prefill_instances=1, decode_instances=1)),
    ],
    ids=["only some sessions", "no cache on the GPU", "prefill and decode"],
)
def test_a_host_cache_is_unknown_where_distances_or_the_engine_do_not_say_it(job: SimulationJob) -> None:
    assert host_caches_of(job)[0].host_cache is None


def test_requests_come_as_they_were_recorded_whatever_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []

    def kept(workload: Workload, plan: ArrivalPlan) -> list[Job]:
        jobs = plan_jobs(workload, plan)
        seen.append([job.arrives_at for job in jobs])
        return jobs

    monkeypatch.setattr(cells, "plan_jobs", kept)
    job = a_job()
    uneven = [replace(one, timestamp=one.timestamp + (400.0 if index % 2 else 0.0)) for index, one in enumerate(job.requests)]
    for seed in (1, 2):
        assert lines_of(replace(job, requests=uneven, seed=seed), "round-robin")
    recorded = [one.timestamp / 1e3 for one in uneven]
    assert seen[0] == seen[1] == pytest.approx([(at - recorded[0]) / 2 for at in recorded])


def test_requests_that_stand_for_several_come_so_many_times_as_fast() -> None:
    (figures,) = [line.figures for line in lines_of(replace(a_job(), weight=4.0), "round-robin") if line.figures]
    assert figures.requests_per_second == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("engine", list(EngineModel))
def test_an_engine_prefills_at_the_declared_speed_and_keeps_what_is_declared(engine: EngineModel) -> None:
    found, words = engine_of(replace(TARGET, engine=engine))
    assert 2_000 / found.prefill.seconds(2_000, 2_000) == pytest.approx(20_000)
    assert found.cache_tokens == 200_000
    assert words.startswith(f"Engines: model {engine.value}, estimated from data sheets, at ")


def test_a_fitted_engine_has_its_costs_and_the_pools_memory() -> None:
    found, words = engine_of(replace(TARGET, engine=EngineModel.VLLM_8B, fitted=COSTS, fit_words="Engines: fitted."))
    assert words == "Engines: fitted."
    assert (found.overhead_seconds, found.decode.fixed, found.max_batched_tokens) == (0.03, 0.02, 2048)
    assert (found.kv_tokens, found.is_estimated, found.mode) == (TARGET.kv_cache_tokens, False, "chunked")


def test_engines_that_are_simulated_themselves_are_as_those_that_are_served() -> None:
    spec = parse_spec({"model": "m", "engine": {"simulated": {"timeScale": 2, "blockSize": 64, "decodeStep": "30ms", "maxRunning": 9}}})
    declared = spec.facts().engine
    found, words = engine_of(
        replace(
            TARGET, engine=EngineModel.SIMULATED, simulated=spec.simulated, prefill_tokens_per_second=declared.prefill_tokens_per_second
        )
    )
    assert (found.block_tokens, found.kv_tokens, found.dram_tokens, found.max_sequences) == (64, 200_000, None, 9)
    assert found.prefill.seconds(1000, 1000) == pytest.approx(1000 / spec.engine.prefill_tokens_per_second / 2)
    assert found.decode.fixed == pytest.approx(0.015)
    assert "compute 12,500 prompt tokens/s" in words


@pytest.mark.parametrize(("block_size", "block_tokens"), [(1024, 512), (48, 16), (7, 1)])
def test_a_simulated_engines_cache_is_as_large_as_declared_whatever_its_block_size(block_size: int, block_tokens: int) -> None:
    spec = parse_spec({"model": "m", "engine": {"simulated": {"blockSize": block_size}}}).simulated
    target = replace(TARGET, engine=EngineModel.SIMULATED, simulated=spec, instances=1, kv_cache_tokens=20_480)
    found, _ = engine_of(target)
    assert found.block_tokens == block_tokens
    little = figures_with(PoolChange(), target)
    ample = figures_with(PoolChange(), replace(target, kv_cache_tokens=200_000))
    assert little.hit_rate < ample.hit_rate, "prefixes are evicted"


@pytest.mark.parametrize("policy", ["fairlead", "ear", "mooncake"])
def test_instances_of_a_real_pool_fetch_nothing_from_each_other(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[RoutingTable] = []
    first_table = SimulatedPool.first_table

    def seen(pool: SimulatedPool) -> RoutingTable:
        tables.append(first_table(pool))
        return tables[-1]

    monkeypatch.setattr(SimulatedPool, "first_table", seen)
    assert [line.figures for line in lines_of(a_job(), policy) if line.figures]
    assert {one.engine.modelled for one in tables} == {ModelledFacts()}


def test_the_api_offers_the_engines_that_the_simulator_knows() -> None:
    assert {engine.value for engine in EngineModel} == set(PRESETS)


def test_blocks_without_an_id_are_like_no_others() -> None:
    two = [TraceRequest(timestamp=at, input_length=1500, output_length=1, hash_ids=[1]) for at in (0.0, 9.0)]
    workload, _ = workload_of(two, engine_of(TARGET)[0])
    first, second = workload.rows
    assert first.hash_ids[0] == second.hash_ids[0] == 1
    assert not set(first.hash_ids[1:]) & set(second.hash_ids[1:])


def test_requests_of_one_moment_have_no_rate() -> None:
    with pytest.raises(WorkloadImpossible, match="at different times"):
        workload_of([replace(conversations()[0], timestamp=5.0)] * 3, engine_of(TARGET)[0])


def figures_with(change: PoolChange, target: SimulatedTarget = TARGET) -> RunFigures:
    """Return the figures of the policy `fairlead` with the change after half of the requests."""
    lines: list[JobLine] = []
    run = JobRun(number=0, policy="fairlead", parameters={}, rate=1.0, seed=5, change=change)
    run_job(replace(a_job(), target=target), [decode_run(encode_line(run))], lines.append)
    (figures,) = [line.figures for line in lines if line.figures]
    return figures


def test_only_the_requests_after_a_change_are_measured_and_without_one_no_session_moves() -> None:
    as_it_is = figures_with(PoolChange())
    assert (as_it_is.requests, as_it_is.sessions_moved) == (42, 0)
    assert as_it_is.hit_rate > 0.5, "the first half has warmed the caches"


def test_a_second_seed_of_a_plans_runs_shows_another_chance_where_the_policy_draws_nothing() -> None:
    job, change = a_job(), PoolChange()
    heavy = replace(job, requests=[replace(one, input_length=one.input_length * (2 + at % 7)) for at, one in enumerate(job.requests)])
    lines: list[JobLine] = []
    runs = [JobRun(number=seed, policy="fairlead", parameters={}, rate=4.0, seed=seed, change=change) for seed in (0, 1)]
    run_job(heavy, runs, lines.append)
    recorded, other = [line.figures for line in lines if line.figures]
    assert recorded.requests == other.requests
    assert replace(other, number=0) != recorded


def test_moves_before_a_change_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    change = PoolChange(drained=0)
    alone = figures_with(change)

    def with_earlier_moves(workload: Workload, ideal: Sequence[int], cell: cells.Cell, **more: Any) -> tuple[cells.CellResult, RunResult]:
        kept, outcome = cells.simulate_cell(workload, ideal, cell, **more)
        outcome.migrations += [replace(move, at=0.0) for move in outcome.migrations]
        outcome.reroutes += [replace(move, at=0.0) for move in outcome.reroutes]
        return kept, outcome

    monkeypatch.setattr(what_if, "simulate_cell", with_earlier_moves)
    assert figures_with(change) == alone
    assert alone.migrations > 0


@pytest.mark.parametrize(
    "change",
    [
        PoolChange(replicas=1),
        PoolChange(drained=0, startup_seconds=5.0),
        PoolChange(drained=1, is_replaced=False),
    ],
)
def test_sessions_of_an_instance_that_goes_move_and_its_cache_is_lost(change: PoolChange) -> None:
    as_it_is, as_planned = figures_with(PoolChange()), figures_with(change)
    assert 0 < (as_planned.sessions_moved or 0) < 21, "those of the other instance stay"
    assert as_planned.hit_rate < as_it_is.hit_rate
    assert as_planned.served == as_planned.requests


def test_a_dearer_instance_costs_more_to_drain() -> None:
    def moved(place: int) -> int:
        return figures_with(PoolChange(drained=place, is_replaced=False), replace(TARGET, instances=3)).sessions_moved or 0

    assert moved(0) <= moved(1) <= moved(2)
    assert moved(0) + moved(1) + moved(2) == 21, "each session lives on one of them"


def test_the_measured_requests_are_told_in_parts_whose_mean_is_the_whole() -> None:
    slow = replace(TARGET, prefill_tokens_per_second=700.0, slo_ttft_seconds=2.5, slo_tpot_seconds=60.0)
    found = figures_with(PoolChange(), slow)
    assert len({part.attainment for part in found.parts}) > 1
    sizes = list(map(len, parts_by_time(42, 84)))
    by_session = [5 * 2, 4 * 2, 4 * 2, 4 * 2, 4 * 2]  # 21 sessions with two turns each
    for parts, weights in ((found.parts, sizes), (found.session_parts, by_session)):
        assert sum(part.attainment * size for part, size in zip(parts, weights, strict=True)) / 42 == pytest.approx(found.attainment)
        assert sum(part.refused_share * size for part, size in zip(parts, weights, strict=True)) / 42 == pytest.approx(found.refused_share)


def test_no_session_is_in_two_parts_and_too_few_sessions_have_none() -> None:
    jobs = [Job(index=index, arrives_at=0.0, input_tokens=1, output_tokens=1, blocks=(), session=f"s{index % 7}") for index in range(50)]
    parts = parts_by_session(jobs)
    assert sorted(chain(*parts)) == list(range(50))
    assert sum(len({index % 7 for index in part}) for part in parts) == 7
    assert parts_by_session([job for job in jobs if job.index % 7 < PARTS - 1]) == []
    assert sorted(map(len, parts_by_session([replace(job, session=None) for job in jobs]))) == [10] * PARTS


def test_sessions_that_stand_for_several_count_so_many_when_they_move() -> None:
    def moved(weight: float) -> int:
        lines: list[JobLine] = []
        run = JobRun(number=0, policy="fairlead", parameters={}, rate=1 / weight, seed=5, change=PoolChange(drained=0, is_replaced=False))
        run_job(replace(a_job(), weight=weight), [run], lines.append)
        return next(line.figures.sessions_moved or 0 for line in lines if line.figures)

    assert moved(4.0) == 4 * moved(1.0) > 0


def test_a_role_of_a_pool_that_scales_itself_keeps_to_its_own_bounds() -> None:
    rules = Autoscaled(
        scaling=ScalingSpec(),
        ratio=RatioSpec(),
        min_replicas=1,
        max_replicas=9,
        roles=[RoleRange(role=Role.PREFILL, min_replicas=2, max_replicas=3)],
    )
    _, scaling = changes_of(PoolChange(autoscaled=rules), 0.0)
    assert scaling is not None
    assert scaling.range_of(Role.PREFILL) == (2, 3)
    assert scaling.range_of(Role.DECODE) == (1, 9), "as runs that were kept before have it for all roles"


def test_more_instances_another_policy_and_early_rejection_show_in_the_figures() -> None:
    slow = replace(TARGET, prefill_tokens_per_second=700.0, slo_ttft_seconds=4.0, slo_tpot_seconds=60.0)
    as_it_is = figures_with(PoolChange(), slow)
    alone = replace(slow, instances=1, slo_ttft_seconds=6.0)
    assert figures_with(PoolChange(replicas=8), alone).attainment > figures_with(PoolChange(), alone).attainment
    assert figures_with(PoolChange(policy="round-robin", parameters={}), slow).hit_rate < as_it_is.hit_rate
    refusing = figures_with(PoolChange(early_rejection="Load", headroom=0.5), slow)
    assert refusing.refused_share > as_it_is.refused_share
