"""The published sizes behind the presets, and the ceilings that follow from them."""

import pytest

from fairlead_simulator.engine_model.presets import PRESETS, preset
from fairlead_simulator.experiments.arrival_plans import load_workload
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
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
    """6,250 tokens/s each and 6,956 tokens a request, answers of one token so that nothing decodes."""
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


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_longest_prompt_and_its_blocks(name: str) -> None:
    one = preset(name)
    assert one.kv_tokens % one.block_tokens == 0
    assert one.max_input_tokens is None or one.max_input_tokens < one.kv_tokens
    assert 0 < one.slo_tpot_seconds < one.slo_ttft_seconds
