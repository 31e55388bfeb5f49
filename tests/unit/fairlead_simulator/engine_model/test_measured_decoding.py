"""A simulation of recorded requests decodes as the pool was measured to decode."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_client.resources.engine_fits import EngineCosts
from fairlead_client.resources.simulations import EngineModel, TraceRequest
from fairlead_client.simulation_jobs import JobLine, JobRun, SimulatedTarget, SimulationJob
from fairlead_simulator import what_if
from fairlead_simulator.engine_model.presets import FURTHEST, PRESETS, UsualLoad, with_measured_steps
from fairlead_simulator.experiments.cells import simulate_cell
from fairlead_testing.builders.served_records import COSTS

TARGET = SimulatedTarget(
    engine=EngineModel.VLLM_8B,
    instances=2,
    decoding_instances=2,
    prefill_tokens_per_second=20_000.0,
    kv_cache_tokens=400_000,
    prefills_in_flight=1,
    anchors=160,
    session_ttl_seconds=1800.0,
    early_rejection="Disabled",
    headroom=1.0,
    slo_ttft_seconds=5.0,
    slo_tpot_seconds=0.1,
)


def traffic(count: int, every_ms: float, output_tokens: int) -> list[TraceRequest]:
    return [
        TraceRequest(
            timestamp=every_ms * number,
            input_length=512 * (1 + number % 6),
            output_length=output_tokens,
            hash_ids=[number * 10 + block for block in range(1 + number % 6)],
            session_id=f"s{number}",
        )
        for number in range(count)
    ]


def run(target: SimulatedTarget, requests: list[TraceRequest], monkeypatch: pytest.MonkeyPatch) -> tuple[float, list[str]]:
    """Return the seconds per token after the first, and the notes."""
    seen: list[float] = []

    def watched(*args: Any, **more: Any) -> Any:
        result, outcome = simulate_cell(*args, **more)
        served = [job for job in outcome.jobs if job.finished_at is not None and job.first_token_at is not None]
        seen.append(sum(job.finished_at - job.first_token_at for job in served) / sum(job.output_tokens - 1 for job in served))
        return result, outcome

    monkeypatch.setattr(what_if, "simulate_cell", watched)
    lines: list[JobLine] = []
    job = SimulationJob(requests=requests, weight=1.0, target=target, seed=3)
    what_if.run_job(job, [JobRun(number=0, policy="least-loaded", parameters={}, rate=1.0)], lines.append)
    return seen[0], lines[0].notes


@pytest.mark.parametrize("slow", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("every_ms", "output_tokens"), [(400.0, 200), (500.0, 150), (2_000.0, 400)])
def test_measured_figures_without_a_fit_give_the_decode_steps_that_were_measured(
    slow: float, every_ms: float, output_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth: EngineCosts = replace(
        COSTS,
        decode_fixed=COSTS.decode_fixed * slow,
        decode_per_context_token=COSTS.decode_per_context_token * slow,
        decode_per_sequence=COSTS.decode_per_sequence * slow,
    )
    requests = traffic(300, every_ms, output_tokens)
    real, _ = run(replace(TARGET, fitted=truth), requests, monkeypatch)
    speed = truth.prefill_tokens_per_second()
    measured = replace(TARGET, prefill_tokens_per_second=speed, decode_step_seconds=real, decode_source="measured, 300 answers, 20 s ago")
    simulated, notes = run(measured, requests, monkeypatch)
    assert simulated == pytest.approx(real, rel=0.2)
    told = f"A token after the first took {1000 * real:.1f} ms (measured, 300 answers, 20 s ago), and the model's decode steps are scaled"
    assert told in notes[-1]
    alone, notes = run(replace(measured, decode_step_seconds=None), requests, monkeypatch)
    assert abs(alone / real - 1) > abs(simulated / real - 1), "as it was before"
    assert "A token after the first" not in notes[-1]


@given(step=st.floats(1e-6, 100.0), rate=st.floats(0.0, 1e4), busy=st.floats(0.0, 100.0))
def test_no_model_is_stretched_beyond_what_an_engine_of_its_kind_can_be(step: float, rate: float, busy: float) -> None:
    engine = PRESETS["vllm-h100-8b"]
    load = UsualLoad(requests_per_second=rate, output_tokens=200.0, context_tokens=2_000.0, prefill_seconds=busy)
    found = with_measured_steps(engine, step, load, prefills=True)
    if found is not None:
        assert engine.decode.fixed / FURTHEST <= found.decode.fixed * 1.001
        assert found.decode.fixed <= engine.decode.fixed * FURTHEST * 1.001
        assert found.prefill == engine.prefill


def test_a_figure_of_another_kind_of_engine_stretches_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = traffic(20, 400.0, 100)
    _, notes = run(replace(TARGET, decode_step_seconds=9.0, decode_source="measured, 1 answer, 20 s ago"), requests, monkeypatch)
    assert "too far from the model" in notes[-1]
    fitted = replace(TARGET, decode_step_seconds=9.0, decode_source="measured", fitted=COSTS, fit_words="Engines: fitted.")
    assert run(fitted, requests, monkeypatch)[1][-1] == "Engines: fitted."
