"""The published sizes behind the presets, and the ceilings that they imply."""

import pytest

from fairlead.instances import Role
from fairlead.routing.knowledge.rings import anchor_count
from fairlead_simulator.engine_model.presets import PRESETS, preset
from fairlead_simulator.experiments.arrival_plans import load_workload
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import TraceRow


def test_dualmaps_host_memory_holds_what_64_gib_hold() -> None:
    small, large = preset("dualmap-910b4-qwen7b"), preset("dualmap-910b3-qwen14b")
    assert small.dram_tokens == 64 * 2**30 // small.transfer.bytes_per_token == 1_198_372
    assert large.dram_tokens == 64 * 2**30 // large.transfer.bytes_per_token == 349_525
    assert small.dram_tokens // small.block_tokens == 9_362
    assert small.kv_tokens == 1_640 * small.block_tokens
    assert (small.max_input_tokens, small.max_batched_tokens, large.max_input_tokens) == (20_480, 20_480, 10_240)
    assert (small.prefill.per_token, large.prefill.per_token, small.slo_ttft_seconds) == (0.00016, 0.000127, 5.0)


def rows(tokens: int, output: int, count: int = 50) -> list[TraceRow]:
    ids = -(-tokens // 512)
    return [
        TraceRow(
            timestamp_ms=number * 1000, input_length=tokens, output_length=output, hash_ids=tuple(range(number * ids, (number + 1) * ids))
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("hit_share", "rate"), [(0.0, 7.19), (1 / 3, 10.78)])
def test_eight_instances_of_dualmaps_testbed_saturate_at_their_prefill_ceiling(hit_share: float, rate: float) -> None:
    """An instance prefills 6,250 tokens/s, a request has 6,956, and answers have one token, so that nothing is
    decoded.
    """
    workload = load_workload(rows(6_956, 1), requests=None, max_input=None, infer_sessions=False)
    hits = [round(6_956 * hit_share)] * len(workload.rows)
    one = preset("dualmap-910b4-qwen7b")
    assert believed_speed(workload, hits, one) == pytest.approx(6_250)
    found = estimate_saturation(workload, hits, one, 8, 0, 0)
    assert found.requests_per_second == pytest.approx(rate, abs=0.01)
    assert found.decode_seconds == 0


def test_separate_pools_saturate_where_the_first_of_them_does() -> None:
    workload = load_workload(rows(6_250, 101), requests=None, max_input=None, infer_sessions=False)
    one, hits = preset("dualmap-910b4-qwen7b"), [0] * 50
    prefill_bound = estimate_saturation(workload, hits, one, 0, 2, 100)
    assert prefill_bound.requests_per_second == pytest.approx(2.0)
    decode_bound = estimate_saturation(workload, hits, one, 0, 1000, 2)
    assert decode_bound.requests_per_second == pytest.approx(2 / decode_bound.decode_seconds)


def test_an_instance_of_half_the_speed_takes_twice_as_long_for_everything_it_computes() -> None:
    one = preset("vllm-h100-8b")
    slow = one.at_speed(0.5)
    assert slow.prefill.seconds(1_000, 4_000) == pytest.approx(2 * one.prefill.seconds(1_000, 4_000))
    assert slow.decode.fixed + 8 * slow.decode.per_sequence == pytest.approx(2 * (one.decode.fixed + 8 * one.decode.per_sequence))
    assert slow.decode.per_context_token == pytest.approx(2 * one.decode.per_context_token)
    assert (slow.transfer, slow.kv_tokens, slow.name) == (one.transfer, one.kv_tokens, one.name)


def test_instances_get_their_speeds_in_turn_also_those_that_come_later() -> None:
    pool = SimulatedPool(preset=preset("vllm-h100-8b"), instances=5, speeds=(1.0, 1.0, 0.5), prefill_tokens_per_second=1.0, seed=7)
    assert [pool.speed_of(entry.id) for entry in pool.first_table().instances] == [1, 1, 0.5, 1, 1]
    assert pool.speed_of(pool.entry(5, Role.BOTH).id) == 0.5
    assert pool.capacity(Role.BOTH) == 4.5
    assert pool.preset_of("b002-7").prefill.fixed == pytest.approx(2 * pool.preset.prefill.fixed)


def test_instances_get_their_weights_on_the_ring_in_turn() -> None:
    pool = SimulatedPool(preset=preset("vllm-h100-8b"), instances=4, weights=(1.0, 0.5), prefill_tokens_per_second=1.0)
    assert [anchor_count(entry) for entry in pool.first_table().instances] == [160, 80, 160, 80]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_longest_prompt_and_its_blocks(name: str) -> None:
    one = preset(name)
    assert one.kv_tokens % one.block_tokens == 0
    assert one.max_input_tokens is None or one.max_input_tokens < one.kv_tokens
    assert 0 < one.slo_tpot_seconds < one.slo_ttft_seconds
