"""Signals that a simulated pool measures of itself."""

from fairlead.reports.rejections import RejectionReason
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.signals import SignalMeter

POOL = SimulatedPool(preset=preset("vllm-h100-8b"), instances=2, prefill_tokens_per_second=30_000)


def test_a_request_refused_after_its_first_token_counts_once_and_as_late() -> None:
    meter = SignalMeter(POOL)
    for index in range(10):
        job = Job(index=index, arrives_at=float(index), input_tokens=1000, output_tokens=10, blocks=(), session=None)
        meter.arrived(job, job.arrives_at)
        job.first_token_at, job.heard_first = index + 0.1, True
        meter.first_token(job, job.first_token_at)
        if index < 5:
            meter.refused(job, job.first_token_at, RejectionReason.AFTER_PREFILL)
    (both,) = meter.signals((), 10.0).roles
    assert (both.ttft_attainment, both.refused_share) == (0.5, 0.5)
