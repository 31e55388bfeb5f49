"""Records of requests as engines of known costs would have served them."""

from dataclasses import replace
from random import Random

from fairlead_client.resources.engine_fits import EngineCosts
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
    costs: EngineCosts = COSTS, *, count: int = 240, engines: int = 2, busy: float = 0.6, seed: int = 0
) -> list[ServedRecord]:
    """So many requests of mixed lengths, at times by chance that keep the engines' prefills `busy` (a share), and what
    the model says that they took.
    """
    random = Random(seed)
    mean_new = 1_250
    pace = busy * engines / (costs.prefill_fixed + mean_new * costs.prefill_per_token)
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
