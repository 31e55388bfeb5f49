"""Records of requests, with the times at which engines of known costs would have served them."""

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from fairlead_client.resources.engine_fits import EngineCosts, EngineFit, FitAccuracy, FitPoint
from fairlead_simulator.engine_fit.records import ServedRecord
from fairlead_simulator.engine_fit.replaying import replay

COSTS = EngineCosts(
    overhead_seconds=0.03,
    prefill_fixed=0.015,
    prefill_per_token=1.2e-4,
    prefill_per_context=2e-6,
    prefill_per_pair=3e-9,
    decode_fixed=0.02,
    decode_per_context_token=1e-7,
    decode_per_sequence=2e-4,
    max_batched_tokens=2048,
)


def served_records(
    costs: EngineCosts = COSTS, *, count: int = 240, engines: int = 2, busy: float = 0.5, seed: int = 0
) -> list[ServedRecord]:
    """Return `count` records of requests of mixed lengths, with the times that the model of `costs` gives them.

    Their arrivals are random and keep the `engines` busy for the share `busy` of the time.
    """
    random = Random(seed)
    mean_new = 1_250
    work = (
        costs.prefill_fixed + mean_new * costs.prefill_per_token + 4_000 * (costs.prefill_per_context + mean_new * costs.prefill_per_pair)
    )
    pace = busy * engines / (work + 10 * costs.decode_fixed)
    at, records = 0.0, []
    for _ in range(count):
        at += random.expovariate(pace)
        prompt = random.choice((500, 2_500, 4_900, 7_000)) + random.randrange(50)
        records.append(
            ServedRecord(
                at=at,
                engine=f"engine-{random.randrange(engines)}",
                prompt_tokens=prompt,
                cached_tokens=int(prompt * random.choice((0.0, 0.8, 0.8, 0.9))) // 16 * 16,
                output_tokens=random.choice((20, 40, 60)),
                ttft=1.0,
                tpot=1.0,
            )
        )
    found = replay(records, costs)
    return [replace(record, ttft=float(ttft), tpot=float(tpot)) for record, ttft, tpot in zip(records, found.ttft, found.tpot, strict=True)]


def a_fit(
    costs: EngineCosts = COSTS, source: str = "requests of default/chat", fitted_at: datetime = datetime(2026, 11, 20, tzinfo=UTC)
) -> EngineFit:
    """Return a fit of engine costs whose TTFT is 12 % off and whose TPOT is 5 % off."""
    ttft = FitAccuracy(
        requests=120,
        real_mean=0.4,
        real_p50=0.3,
        real_p90=0.8,
        real_p99=1.5,
        modelled_mean=0.39,
        modelled_p50=0.29,
        modelled_p90=0.79,
        modelled_p99=1.4,
        mean_error=0.12,
        correlation=0.94,
    )
    return EngineFit(
        source=source,
        fitted_at=fitted_at,
        engines=2,
        requests=240,
        fitted=120,
        contradicting=3,
        at_edges=4,
        costs=costs,
        ttft=ttft,
        tpot=replace(ttft, mean_error=0.05),
        ttft_points=[FitPoint(real=0.3, modelled=0.31), FitPoint(real=0.5, modelled=0.4)],
        tpot_points=[FitPoint(real=0.03, modelled=0.031)],
    )
