"""Every policy on model engines through failures, scaling, schedules and late events: every request ends.

No record of a request is left anywhere.
"""

from collections import Counter
from itertools import islice
from random import Random

import pytest

from fairlead.instances import Role
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Phase
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import Fail, Override, ScaleTo, TimelineEvent
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.worlds.watched_policy import watched_policies

WORKLOAD = load_workload(islice(KINDS["tool-agent"].rows(None, None, 2), 450), requests=350, max_input=10_000, infer_sessions=True)
MODES = ("Disabled", "Load", "Predicted", "AfterPrefill")


def events(draw: Random, roles: tuple[Role, ...]) -> tuple[TimelineEvent, ...]:
    """Return ten changes within the run; changes of pools leave an instance that can fail."""
    found: list[TimelineEvent] = []
    for begin in range(0, 45, 5):
        at = begin + draw.uniform(0.0, 3.0)
        what = draw.choice(["scale", "scale", "fail", "override"])
        if what == "scale":
            found.append(ScaleTo(at=at, instances=draw.randint(3, 5), role=draw.choice(roles), startup_seconds=draw.choice([0.0, 4.0])))
        elif what == "fail":
            found.append(
                Fail(at=at, instance=0, detected_after_seconds=draw.choice([0.0, 2.0]), recovered_after_seconds=draw.choice([2.0, 5.0]))
            )
        else:
            found.append(Override(at=at, early_rejection=draw.choice(MODES), slo_ttft_seconds=draw.choice([2.0, 8.0])))
    lasting = ScaleTo(at=46.0, instances=3, role=roles[0])
    return (*found, lasting, *(ScaleTo(at=46.0, instances=3, role=role) for role in roles[1:]))


POOLS = [(policy, split) for policy in BUILT_IN.names for split in (False, True) if split or not BUILT_IN.entry(policy).needs_roles]


@pytest.mark.parametrize(("policy", "split"), POOLS)
def test_every_request_ends_once_and_nothing_is_left_anywhere(policy: str, split: bool) -> None:
    draw = Random(f"{policy}/{split}")
    roles = (Role.PREFILL, Role.DECODE) if split else (Role.BOTH,)
    spec = SimulatedPool(
        preset=preset(draw.choice(["dualmap-910b4-qwen7b", "vllm-h100-8b"])),
        instances=0 if split else 4,
        prefill_instances=3 if split else 0,
        decode_instances=2 if split else 0,
        policy=policy,
        parameters={"queue_timeout_seconds": 15, "queue_limit": 20},
        early_rejection=draw.choice(MODES),
        prefill_tokens_per_second=6250.0,
    )
    quality = ObservationQuality(
        token_noise=draw.choice([0.0, 0.3]),
        delay_seconds=draw.choice([0.0, 0.4]),
        streamed_share=Random(f"streams/{policy}/{split}").choice([0.0, 0.5, 1.0]),
    )
    seen: Counter[str] = Counter()
    with watched_policies(seen):
        simulation = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=7.0)), quality=quality, timeline=events(draw, roles))
        result = simulation.run()
    ended = Counter(job.phase for job in result.jobs)
    assert ended.keys() <= {Phase.FINISHED, Phase.REFUSED, Phase.FAILED}
    assert ended[Phase.FINISHED] > 50
    assert result.refusals.keys() <= {reason.value for reason in RejectionReason}
    assert sum(result.refusals.values()) >= ended[Phase.REFUSED]
    assert seen["choice"] >= ended[Phase.FINISHED]
    assert simulation.scheduler.discrepancies() == ()
    assert simulation.scheduler.waiting() == 0
    for load in simulation.scheduler.loads():
        assert (load.waiting, load.prefilling, load.decoding, load.incoming, load.transfers_out) == (0, 0, 0, 0, 0)
        assert (load.pending_prefill_tokens, load.decode_tokens) == (0, 0)
    for name, instance in simulation.fleet.instances.items():
        if not simulation.fleet.alive(name):
            continue  # an engine that died keeps the memory it had
        assert (instance.running, instance.kv.private, instance.kv.pinned) == (0, 0, 0)
