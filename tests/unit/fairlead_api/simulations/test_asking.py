"""Which simulations may be requested: every bound has a message that names field, value and remedy."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.capabilities import EngineCapability, Figure, Source
from fairlead.engine_specs import SimulatedSpec
from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import parse_spec
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.http.bodies import MalformedBody
from fairlead_api.simulations.asking import PoolAtPresent, inputs_of
from fairlead_api.simulations.routes import decode_request
from fairlead_api.simulations.running import results_of, runs_of, winner_of
from fairlead_client.resources.simulations import EngineModel, SimulatedPolicy, SimulationRequest, TraceRequest
from fairlead_client.simulation_jobs import RunFigures
from fairlead_testing.builders.served_records import a_fit

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
POOL = PoolAtPresent(
    facts=parse_spec({"model": "m", "engine": {"type": "simulated"}, "slo": {"ttft": "3s"}}).facts(),
    instances={Role.BOTH: 32},
    simulated=SimulatedSpec(decode_step_seconds=0.03),
)
SPLIT = replace(POOL, instances={Role.PREFILL: 2, Role.DECODE: 3})
ROW = TraceRequest(timestamp=1.0, input_length=600, output_length=1, hash_ids=[1, 2])


def asked(*names: str, **changes: Any) -> SimulationRequest:
    return SimulationRequest(policies=[SimulatedPolicy(policy=name) for name in names or ("fairlead",)], **changes)


def test_a_request_is_completed_by_the_pool_as_it_is() -> None:
    found = inputs_of(asked("round-robin", "fairlead", rates=[1.0, 1.5]), POOL, BUILT_IN, NOW)
    assert found.window == (NOW - timedelta(hours=1), NOW)
    assert (found.target.instances, found.target.slo_ttft_seconds, found.target.engine) == (32, 3.0, EngineModel.SIMULATED)
    assert found.target.simulated == SimulatedSpec(decode_step_seconds=0.03)
    other = inputs_of(asked(engine=EngineModel.VLLM_8B), POOL, BUILT_IN, NOW).target
    assert (other.engine, other.simulated) == (EngineModel.VLLM_8B, None), "what its own engines do says nothing of others"
    split = inputs_of(asked(decode_replicas=5), SPLIT, BUILT_IN, NOW).target
    assert (split.instances, split.prefill_instances, split.decode_instances) == (0, 2, 5)


def test_a_pool_is_simulated_by_the_engine_fitted_to_it_unless_another_is_asked_for() -> None:
    real = replace(POOL, facts=replace(POOL.facts, engine=replace(POOL.facts.engine, type="vllm")), simulated=None, fit=a_fit())
    found = inputs_of(asked(), real, BUILT_IN, NOW).target
    assert found.fitted == a_fit().costs
    assert found.fit_words == (
        "Engines: fitted 3 days ago to requests of default/chat; on other requests, the mean error was 12.0 % of the mean TTFT and 5.0 % of the mean TPOT."
    )
    assert inputs_of(asked(engine=EngineModel.VLLM_8B), real, BUILT_IN, NOW).target.fitted is None
    assert inputs_of(asked(), replace(POOL, fit=a_fit()), BUILT_IN, NOW).target.fitted is None, "simulated engines are as they are declared"


def test_a_pool_of_real_engines_is_simulated_as_they_were_seen_and_the_source_is_said() -> None:
    real = replace(POOL, facts=replace(POOL.facts, engine=replace(POOL.facts.engine, type="vllm")), simulated=None)
    unseen = inputs_of(asked(), real, BUILT_IN, NOW).target
    assert (unseen.prefill_tokens_per_second, unseen.speed_source) == (6250.0, "declared, not measured yet")
    speed = Figure(value=23_000.0, source=Source.MEASURED, samples=41, age_seconds=20.0)
    cache = Figure(value=400_000.0, source=Source.MEASURED, samples=4, age_seconds=0.0)
    seen = replace(real, capability=EngineCapability(prefill_tokens_per_second=speed, kv_cache_tokens=cache))
    found = inputs_of(asked(), seen, BUILT_IN, NOW).target
    assert (found.prefill_tokens_per_second, found.kv_cache_tokens) == (23_000.0, 400_000)
    assert found.speed_source == "measured, 41 prefills, 20 s ago"
    own = inputs_of(asked(), replace(POOL, capability=seen.capability), BUILT_IN, NOW).target
    assert own.prefill_tokens_per_second == 6250.0, "simulated engines are as they are declared"


def test_measured_decode_steps_are_simulated_with_the_requests_that_they_were_measured_with_and_no_others() -> None:
    step = Figure(value=0.025, source=Source.MEASURED, samples=400, age_seconds=20.0)
    facts = replace(POOL.facts, engine=replace(POOL.facts.engine, type="vllm"))
    seen = replace(POOL, facts=facts, simulated=None, capability=EngineCapability(decode_step_seconds=step))
    found = inputs_of(asked(replicas=3), seen, BUILT_IN, NOW).target
    assert (found.decode_step_seconds, found.decode_source) == (0.025, "measured, 400 answers, 20 s ago")
    assert found.decoding_instances == 32, "as many as there were, whatever is asked for"
    assert inputs_of(asked(), replace(seen, instances=SPLIT.instances), BUILT_IN, NOW).target.decoding_instances == 3
    for other in (asked(engine=EngineModel.VLLM_8B), asked(trace=[ROW, replace(ROW, timestamp=2.0)])):
        assert inputs_of(other, seen, BUILT_IN, NOW).target.decode_step_seconds is None
    own = inputs_of(asked(), replace(POOL, capability=seen.capability), BUILT_IN, NOW).target
    assert own.decode_step_seconds is None, "simulated engines are as they are declared"


def test_instances_keep_their_weights_and_those_the_pool_does_not_have_have_1() -> None:
    weighed = replace(POOL, instances={Role.BOTH: 3}, weights=(1.0, 0.5, 2.0))
    found = [inputs_of(asked(replicas=number), weighed, BUILT_IN, NOW).target.weights for number in (None, 2, 4, 1)]
    assert found == [[1.0, 0.5, 2.0], [1.0, 0.5], [1.0, 0.5, 2.0, 1.0], []]


@pytest.mark.parametrize(
    ("request_", "pool", "field"),
    [
        (asked("no-such-policy"), POOL, "policies[0].policy"),
        (asked("fairlead", "mooncake", "fairlead"), POOL, "policies[2]"),
        (SimulationRequest(policies=[SimulatedPolicy(policy="dualmap", parameters={"x": 1})]), POOL, "policies[0].parameters.x"),
        (SimulationRequest(policies=[]), POOL, "policies"),
        (asked(rates=[1.0, 1.0]), POOL, "rates[1]"),
        (asked(rates=[float("nan")]), POOL, "rates[0]"),
        (asked(*("round-robin", "fairlead", "ear", "dualmap", "mooncake"), rates=[0.5, 1, 2, 3, 4]), POOL, "rates"),
        (asked(seed=-1), POOL, "seed"),
        (asked(replicas=0), POOL, "replicas"),
        (asked(), replace(POOL, instances={Role.BOTH: 0}), "replicas"),
        (asked(replicas=4), SPLIT, "replicas"),
        (asked(prefill_replicas=4), POOL, "prefill_replicas"),
        (asked(start="now-30h"), POOL, "start"),
        (asked(start="now-1h", end="now-2h"), POOL, "start"),
        (asked(start="yesterday"), POOL, "start"),
        (asked(trace=[ROW]), POOL, "trace"),
        (asked(trace=[ROW, replace(ROW, timestamp=0.5)]), POOL, "trace[1].timestamp"),
        (asked(trace=[ROW, replace(ROW, hash_ids=[1])]), POOL, "trace[1].hash_ids"),
        (asked(trace=[ROW, replace(ROW, input_length=0, hash_ids=[])]), POOL, "trace[1].input_length"),
        (asked(trace=[ROW, replace(ROW, hash_ids=[1, 2**63])]), POOL, "trace[1].hash_ids"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_field(request_: SimulationRequest, pool: PoolAtPresent, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        inputs_of(request_, pool, BUILT_IN, NOW)
    assert refused.value.field == field


@pytest.mark.parametrize("body", [b"{", b'"\xff"', b'{"policies": ' + b"[" * 5000, b'{"seed": "\\ud800"}'])
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises((MalformedBody, InvalidInput)):
        decode_request(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b'{"policies": [], "rate": 1}', "rate"),
        (b'{"policies": [{"name": "fairlead"}]}', "policies[0].name"),
        (b'{"policies": [7]}', "policies[0]"),
        (b'{"policies": "x"}', "policies"),
        (b'{"policies": [], "seed": 1e400}', "body"),
        (b'{"policies": [], "engine": "tpu"}', "engine"),
    ],
)
def test_an_unknown_field_is_refused_and_never_ignored(body: bytes, field: str) -> None:
    with pytest.raises((InvalidInput, MalformedBody)) as refused:
        decode_request(body)
    if isinstance(refused.value, InvalidInput):
        assert refused.value.field == field


def figures(number: int, attainment: float, ttft: float | None = 1.0) -> RunFigures:
    return RunFigures(
        number=number,
        requests_per_second=1.0,
        requests=10,
        served=10,
        failed=0,
        attainment=attainment,
        refused_share=0.0,
        ttft_p50=ttft,
        ttft_p90=ttft,
        ttft_p99=ttft,
        tpot_p90=None,
        hit_rate=0.5,
        ideal_hit_rate=0.5,
        migrations=0,
        reroutes=0,
    )


@pytest.mark.parametrize(
    ("attained", "ttft", "winner"),
    [
        ([(0.9, 0.2), (0.8, 0.8)], [1.0, 1.0], 1),
        ([(0.5, 0.5), (0.5, 0.5)], [1.0, 0.9], 1),
        ([(0.5, 0.5), (0.5, 0.5)], [1.0, 1.0], 0),
        ([(0.0, 0.0), (0.0, 0.0)], [None, 9.0], 1),
    ],
)
def test_the_winner_has_the_highest_mean_attainment_then_the_shortest_wait_then_comes_first(
    attained: list[tuple[float, float]], ttft: list[float | None], winner: int
) -> None:
    policies, rates = asked("round-robin", "fairlead").policies, [1.0, 2.0]
    runs = runs_of(policies, rates)
    told = {run.number: figures(run.number, attained[run.number % 2][run.number // 2], ttft[run.number % 2]) for run in runs}
    results = results_of(runs, told)
    assert [(one.rate, one.policy) for one in results] == [(rate, one.policy) for rate in rates for one in policies]
    assert [one.attainment_change for one in results[::2]] == [0.0, 0.0]
    assert results[3].attainment_change == pytest.approx(attained[1][1] - attained[0][1])
    assert winner_of(policies, results) == winner
