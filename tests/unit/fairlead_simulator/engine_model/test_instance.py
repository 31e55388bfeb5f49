"""One model engine whose steps a test runs."""

from dataclasses import replace
from random import Random

import pytest

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.engine_model.text_memory import TextMemory, TextRequest
from fairlead_simulator.simulation.fleet import SimulatedInstance
from fairlead_simulator.simulation.jobs import Job, Phase

SMALL = replace(
    preset("dualmap-910b4-qwen7b"),
    kv_tokens=128 * 200,
    dram_tokens=None,
    prefill=PrefillCost(per_token=0.001),
    decode=DecodeCost(fixed=0.01, per_context_token=0.0, per_sequence=0.0),
)
CHUNKED = replace(SMALL, mode="chunked", max_batched_tokens=512)


def job(index: int, tokens: int, output: int = 1, *, chain: int | None = None, at: float = 0.0) -> Job:
    """Return a request; requests of one `chain` share their blocks up to the shorter one's end."""
    base = (index if chain is None else chain) * 10_000 + 1
    blocks = tuple(range(base, base + tokens // 512))
    return Job(index=index, arrives_at=at, input_tokens=tokens, output_tokens=output, blocks=blocks, session=None)


def drain(instance: SimulatedInstance, until: float = 1e9) -> None:
    """Let the engine work until nothing is left to do."""
    while instance.ends_at is not None and instance.ends_at <= until:
        instance.step_ended(instance.ends_at)


def test_a_prompt_takes_its_uncached_tokens_times_the_cost() -> None:
    instance = SimulatedInstance("i", SMALL)
    first, second = job(0, 2000, chain=1), job(1, 2500, chain=1)
    instance.submit(first, 0.0)
    drain(instance)
    instance.submit(second, 10.0)
    drain(instance)
    assert first.first_token_at == pytest.approx(2.0)
    assert second.hit_tokens == 3 * 512
    assert second.first_token_at == pytest.approx(10.0 + 0.001 * (2500 - 1536))


def test_a_fully_cached_prompt_still_computes_its_last_block() -> None:
    instance = SimulatedInstance("i", SMALL)
    instance.submit(job(0, 1024, chain=1), 0.0)
    drain(instance)
    again = job(1, 1024, chain=1)
    instance.submit(again, 5.0)
    drain(instance)
    assert again.hit_tokens == 512


def test_blocks_are_visible_when_the_step_that_computed_them_ends() -> None:
    instance = SimulatedInstance("i", replace(SMALL, max_batched_tokens=10))
    one, two = job(0, 1500, chain=1), job(1, 1500, chain=1)
    instance.submit(one, 0.0)
    instance.submit(two, 0.1)
    drain(instance)
    assert (one.hit_tokens, two.hit_tokens) == (0, 1024)


def test_waiting_prompts_share_a_step_up_to_the_token_budget() -> None:
    instance = SimulatedInstance("i", replace(SMALL, max_batched_tokens=1000))
    jobs = [job(index, 400) for index in range(4)]
    for one in jobs:
        instance.submit(one, 0.0)
    drain(instance)
    assert [one.first_token_at for one in jobs] == pytest.approx([0.4, 1.2, 1.2, 1.6])


def test_an_arriving_prompt_waits_for_the_decode_step_in_progress_only() -> None:
    instance = SimulatedInstance("i", SMALL)
    long, late = job(0, 100, output=1000), job(1, 100)
    instance.submit(long, 0.0)
    drain(instance, until=0.1)
    instance.submit(late, 0.1 + 0.0253)
    drain(instance)
    assert late.first_token_at == pytest.approx(0.1 + 0.03 + 0.1)
    assert long.finished_at == pytest.approx(0.1 + 999 * 0.01 + 0.1)


def test_a_run_of_decode_steps_does_not_depend_on_how_often_it_is_interrupted() -> None:
    alone, disturbed = (
        SimulatedInstance("a", replace(SMALL, kv_tokens=128 * 20)),
        SimulatedInstance("b", replace(SMALL, kv_tokens=128 * 20)),
    )
    one, same = job(0, 1900, output=300), job(0, 1900, output=300)
    alone.submit(one, 0.0)
    drain(alone)
    disturbed.submit(same, 0.0)
    for number in range(1, 40):  # too large to fit beside it, so they only knock
        drain(disturbed, until=1.9 + number * 0.0473)
        disturbed.submit(job(number, 1800), 1.9 + number * 0.0473)
    while same.finished_at < 0:
        assert disturbed.ends_at is not None
        disturbed.step_ended(disturbed.ends_at)
    assert same.finished_at == pytest.approx(one.finished_at)


def test_out_of_blocks_the_latest_is_preempted_and_finishes_later() -> None:
    instance = SimulatedInstance("i", replace(SMALL, kv_tokens=128 * 12))
    jobs = [job(index, 500, output=400) for index in range(2)]
    for one in jobs:
        instance.submit(one, 0.0)
    drain(instance)
    assert [one.preemptions for one in jobs] == [0, 1]
    assert all(one.phase is Phase.FINISHED and one.generated == 400 for one in jobs)
    assert jobs[1].finished_at > jobs[0].finished_at
    assert instance.kv.usage == 0.0


@pytest.mark.parametrize("engine", [SMALL, CHUNKED])
def test_a_prompt_waits_while_kept_kv_leaves_no_room_for_it(engine: EnginePreset) -> None:
    block_tokens = engine.block_tokens
    instance = Instance("i", engine, TextMemory(100, block_tokens, 4))
    fetched, waiting = (
        TextRequest(input_tokens=60 * block_tokens, output_tokens=1, prompt=letter * 60 * 4, kept=kept)
        for letter, kept in ((b"a", True), (b"b", False))
    )
    instance.submit(fetched, 0.0)
    while instance.ends_at is not None:
        instance.step_ended(instance.ends_at)
    instance.submit(waiting, 100.0)
    assert (waiting.phase, instance.ends_at) == (Phase.WAITING, None)
    instance.release(fetched, 200.0)
    while instance.ends_at is not None:
        instance.step_ended(instance.ends_at)
    assert waiting.phase is Phase.FINISHED


@pytest.mark.parametrize("engine", [SMALL, CHUNKED, replace(CHUNKED, max_batched_tokens=64, kv_tokens=128 * 40)])
def test_every_request_gets_all_its_tokens_and_leaves_nothing_behind(engine: EnginePreset) -> None:
    source = Random(3)
    instance = SimulatedInstance("i", engine)
    jobs = [job(index, source.randint(1, 3000), source.randint(1, 200), chain=source.randint(1, 5)) for index in range(150)]
    now = 0.0
    for one in jobs:
        now += source.expovariate(1.0)
        drain(instance, until=now)
        instance.submit(one, now)
    drain(instance)
    assert all(one.phase is Phase.FINISHED and one.generated == one.output_tokens for one in jobs)
    assert (instance.running, instance.kv.private, instance.kv.pinned) == (0, 0, 0)
    assert all(one.arrives_at <= one.first_token_at <= one.finished_at for one in jobs)


def test_a_chunked_step_never_exceeds_its_budget_and_prompts_keep_their_order() -> None:
    instance = SimulatedInstance("i", CHUNKED)
    decoding = job(0, 100, output=500)
    instance.submit(decoding, 0.0)
    prompts = [job(index, 1300) for index in range(1, 6)]
    for one in prompts:
        instance.submit(one, 0.0)
    drain(instance)
    assert instance.largest_step_tokens == 512
    assert [one.index for one in sorted(prompts, key=lambda one: one.first_token_at)] == [1, 2, 3, 4, 5]
    assert decoding.finished_at > prompts[-1].first_token_at


@pytest.mark.parametrize("beside", [False, True])
def test_a_run_of_chunks_takes_as_long_as_its_steps_and_stops_where_it_is_cut(beside: bool) -> None:
    cost = PrefillCost(fixed=0.02, per_token=0.001, per_pair=1e-7)
    engine = replace(CHUNKED, prefill=cost, decode=DecodeCost(fixed=0.01, per_context_token=1e-5, per_sequence=0.001))
    whole, cut = SimulatedInstance("a", engine), SimulatedInstance("b", engine)
    firsts: list[float] = []
    for instance in (whole, cut):
        if beside:
            instance.submit(job(0, 64, output=100), 0.0)
            drain(instance, until=0.2)
        long = job(1, 2600)
        instance.submit(long, 0.2)
        if instance is cut:  # news from elsewhere ends each step on its own
            for number in range(40):
                drain(instance, until=0.2 + number * 0.09)
                instance.abort(job(99, 1), 0.2 + number * 0.09)
        drain(instance)
        firsts.append(long.first_token_at)
    assert firsts[0] == pytest.approx(firsts[1], abs=1e-9)
    if not beside:
        chunks = [(512, 512 * step) for step in range(1, 6)] + [(40, 2600)]
        assert firsts[0] == pytest.approx(0.2 + sum(cost.seconds(new, end) for new, end in chunks))


def test_decodes_go_on_while_a_long_prompt_is_computed_in_chunks_but_wait_for_a_prioritised_one() -> None:
    finished: dict[str, float] = {}
    for engine in (SMALL, CHUNKED):
        instance = SimulatedInstance("i", engine)
        short = job(0, 100, output=5)
        instance.submit(short, 0.0)
        drain(instance, until=0.1)
        instance.submit(job(1, 5120), 0.1)
        drain(instance)
        finished[engine.mode] = short.finished_at
    assert finished["chunked"] < 0.1 + 5.12 < finished["prefill_priority"]


def test_with_a_dram_tier_hits_outlive_the_gpu_memory() -> None:
    instance = SimulatedInstance("i", replace(SMALL, kv_tokens=128 * 30, dram_tokens=512 * 100))
    for index in range(5):
        instance.submit(job(index, 3000), float(index * 10))
        drain(instance)
    again = job(9, 3000, chain=0)
    instance.submit(again, 100.0)
    drain(instance)
    assert again.hit_tokens == 5 * 512


def test_what_the_gpu_has_given_up_is_loaded_from_a_host_cache_behind_it() -> None:
    engine = replace(SMALL, kv_tokens=128 * 30, host_tokens=512 * 100, dram_seconds_per_token=0.01)
    instance = SimulatedInstance("i", engine)
    for index in range(5):
        instance.submit(job(index, 3000), float(index * 100))
        drain(instance)
    again, hot = job(9, 3000, chain=0), job(10, 3000, chain=0)
    for one, at in ((again, 1000.0), (hot, 2000.0)):
        instance.submit(one, at)
        drain(instance)
    assert again.hit_tokens == hot.hit_tokens == 5 * 512
    slower = (again.first_token_at - again.admitted_at) - (hot.first_token_at - hot.admitted_at)
    assert slower == pytest.approx(5 * 512 * 0.01), "the second time they are on the GPU"
    assert (instance.kv.pinned, instance.kv.private) == (0, 0)


def test_a_host_cache_needs_a_cache_on_the_gpu() -> None:
    with pytest.raises(ValueError, match="a host cache needs a prefix cache on the GPU"):
        SimulatedInstance("i", replace(SMALL, host_tokens=512, dram_tokens=512 * 100))


def test_an_aborted_request_lets_go_of_its_memory_wherever_it_is() -> None:
    instance = SimulatedInstance("i", SMALL)
    decoding, prefilling, waiting = job(0, 600, output=500), job(1, 600), job(2, 600)
    instance.submit(decoding, 0.0)
    drain(instance, until=0.7)
    instance.submit(prefilling, 0.7)
    instance.submit(waiting, 0.7)
    drain(instance, until=0.72)
    for one in (decoding, prefilling, waiting):
        assert instance.has(one)
        instance.abort(one, 0.72)
    drain(instance)
    assert (instance.running, instance.kv.private, instance.kv.pinned, instance.waiting) == (0, 0, 0, 0)
    assert decoding.finished_at < 0
