"""One engine as its server runs it: advanced to any moment, with text prompts, limits and figures."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.requests import Generation
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded
from fairlead_testing.examples import examples

FAR = 1e7
DECODE = DecodeCost(fixed=0.02, per_context_token=7.2e-8, per_sequence=0.00005)
ALONE = EngineSettings(
    mode="prefill_priority",
    block_tokens=16,
    kv_tokens=1_198_372,
    max_batched_tokens=1,
    prefill=PrefillCost(per_token=1 / 6250),
    decode=DECODE,
)
"""A budget of one token, so that every prompt is prefilled alone."""
CHUNKED = replace(ALONE, mode="chunked", max_batched_tokens=64)


def an_engine(engine: EngineSettings = ALONE, max_waiting: int = 1024) -> ServedEngine:
    return ServedEngine(engine, bytes_per_token=4, max_waiting=max_waiting, statistics=EngineStatistics())


def answer(tokens: int) -> bytes:
    return b"abcd" * tokens


def a_request(name: str, tokens: int, output: int = 1, text: bytes = b"", slow: float = 1.0) -> Generation:
    prompt = text or (name.encode() * (tokens * 4))[: tokens * 4]
    return Generation(prompt=prompt, input_tokens=tokens, output_tokens=output, answer=answer, slow_factor=slow)


def submitted(engine: ServedEngine, generation: Generation, now: float) -> Generation:
    engine.submit(generation, now)
    return generation


def decode_seconds(context: int, steps: int, batch: int = 1) -> float:
    return sum(DECODE.fixed + DECODE.per_sequence * batch + DECODE.per_context_token * (context + batch * step) for step in range(steps))


@pytest.mark.parametrize("settings", [ALONE, CHUNKED])
def test_requests_with_a_lower_number_go_first_and_those_of_one_number_in_the_order_of_arrival(settings: EngineSettings) -> None:
    engine = an_engine(settings)
    given = [("first", 5), ("low", 5), ("plain", 0), ("high", -5), ("low-too", 5), ("plain-too", 0)]
    requests = {name: submitted(engine, replace(a_request(name, 640), priority=priority), 0.0) for name, priority in given}
    engine.advance(FAR)
    ended = sorted(requests, key=lambda name: requests[name].first_token_at)
    assert ended == ["first", "high", "plain", "plain-too", "low", "low-too"], "what was computed already stays"


def test_a_full_cache_takes_back_the_request_with_the_highest_number() -> None:
    engine = an_engine(replace(ALONE, kv_tokens=1600))
    low, high = (submitted(engine, replace(a_request(name, 400, 600), priority=number), 0.0) for name, number in (("l", 5), ("h", -5)))
    engine.advance(FAR)
    assert (high.preemptions, low.preemptions > 0) == (0, True)
    assert high.finished_at < low.finished_at


@pytest.mark.parametrize(
    ("path", "document", "headers", "priority"),
    [
        ("/v1/completions", {}, {}, 0),
        ("/v1/completions", {"priority": 7}, {}, 7),
        ("/v1/completions", {"priority": 7}, {b"x-vllm-priority": b"-3"}, -3),
        ("/v1/completions", {"priority": 7}, {b"x-vllm-priority": b"soon"}, 7),
        ("/v1/messages", {"priority": 7}, {}, 0),
        ("/v1/messages", {"priority": 7}, {b"x-vllm-priority": b"-3"}, -3),
        ("/v1/embeddings", {"priority": 7}, {b"x-vllm-priority": b"-3"}, 7),
    ],
)
def test_a_priority_is_read_where_a_vllm_reads_it(path: str, document: Document, headers: dict[bytes, bytes], priority: int) -> None:
    assert fields.priority(document, headers, path) == priority


def test_a_lone_request_takes_its_prefill_and_its_decode_steps_exactly() -> None:
    engine = an_engine()
    generation = submitted(engine, a_request("a", 6250, 11), 0.0)
    engine.advance(FAR)
    progress = engine.take_progress()
    assert progress.first_tokens == progress.finished == [generation]
    assert generation.first_token_at == pytest.approx(1.0)
    assert generation.finished_at == pytest.approx(1.0 + decode_seconds(6251, 10))
    assert engine.instance.generated(generation) == 11
    assert engine.statistics.time_to_first_token.total == pytest.approx(1.0)
    assert engine.statistics.inter_token_latency.count == 10
    assert engine.statistics.inter_token_latency.total == pytest.approx(decode_seconds(6251, 10))


def test_waiting_times_of_random_arrivals_follow_the_m_d_1_formula() -> None:
    rng, engine, load = Random(7), an_engine(), 0.5
    service = 625 / 6250
    now, generations = 0.0, []
    for _ in range(20_000):
        now += rng.expovariate(load / service)
        generations.append(submitted(engine, Generation(prompt=b"short", input_tokens=625, output_tokens=1), now))
    engine.advance(FAR)
    waits = [generation.admitted_at - generation.arrived_at for generation in generations]
    assert sum(waits) / len(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)


@pytest.mark.parametrize("engine_settings", [ALONE, replace(ALONE, max_batched_tokens=20_480), CHUNKED])
def test_prefill_throughput_is_capped_by_its_speed(engine_settings: EngineSettings) -> None:
    engine = an_engine(engine_settings, max_waiting=10_000)
    for _ in range(1000):
        engine.submit(Generation(prompt=b"x", input_tokens=100, output_tokens=1), 0.0)
    engine.advance(FAR)
    assert engine.take_progress().finished[-1].finished_at == pytest.approx(16.0)


def test_a_prompt_seen_before_is_prefilled_from_its_last_block_on() -> None:
    engine = an_engine(replace(ALONE, prefill=PrefillCost(per_token=0.001)))
    text = bytes(range(256)) * 4
    engine.submit(a_request("a", 256, text=text), 0.0)
    again = submitted(engine, a_request("b", 256, text=text), 100.0)
    longer = submitted(engine, a_request("c", 300, text=text + b"y" * 176), 100.0)
    engine.advance(200.0)
    assert again.hit_tokens == 240, "at least one token is always computed"
    assert again.first_token_at - 100.0 == pytest.approx(0.016)
    assert longer.hit_tokens == 256
    assert engine.statistics.prefix_hits_tokens == 240 + 256
    assert engine.statistics.prefix_queries_tokens == 256 + 256 + 300


def test_the_next_turn_finds_the_answer_in_the_cache() -> None:
    engine = an_engine()
    prompt = b"p" * 256
    engine.submit(a_request("a", 64, 33, text=prompt), 0.0)
    turn = prompt + answer(33) + b"q" * 64
    second = submitted(engine, a_request("b", len(turn) // 4, text=turn), FAR)
    assert second.hit_tokens == 96, "64 of the prompt and 32 of the answer; the last token of an answer is never fed back"


def test_blocks_become_visible_when_the_prefill_ends() -> None:
    engine = an_engine()
    text = b"z" * 6400
    first = submitted(engine, a_request("a", 1600, text=text), 0.0)
    second = submitted(engine, a_request("b", 1600, text=text), 0.0)
    engine.advance(FAR)
    assert (first.hit_tokens, second.hit_tokens) == (0, 1584)


def test_a_new_prompt_goes_before_the_next_decode_step() -> None:
    engine = an_engine()
    old = submitted(engine, a_request("a", 100, 1000), 0.0)
    engine.advance(1.0)
    before = engine.instance.generated(old)
    new = submitted(engine, a_request("b", 6250), 1.0)
    engine.advance(1.5)
    assert new.phase is Phase.PREFILLING
    assert not engine.instance.decoding
    assert engine.instance.generated(old) == before + 1, "only the step in progress finished"
    engine.advance(3.0)
    assert new.first_token_at == pytest.approx(new.admitted_at + 1.0)
    assert engine.instance.generated(old) > before + 1


def test_a_chunked_engine_goes_on_decoding_beside_a_long_prompt() -> None:
    engine = an_engine(CHUNKED)
    old = submitted(engine, a_request("a", 16, 1000), 0.0)
    engine.advance(1.0)
    engine.submit(a_request("b", 6250), 1.0)
    engine.advance(2.0)
    before = engine.instance.generated(old)
    engine.advance(2.5)
    assert engine.instance.decoding
    assert engine.instance.generated(old) - before == pytest.approx(0.5 / (63 / 6250 + 0.02005), abs=1)


def test_running_and_waiting_limits_hold() -> None:
    engine = an_engine(replace(ALONE, max_sequences=2), max_waiting=3)
    for number in range(2):
        engine.submit(a_request(f"r{number}", 10, 100), number / 100)
    engine.advance(0.1)
    for number in range(3):
        engine.submit(a_request(f"w{number}", 10), 0.1)
    assert (engine.instance.running, engine.instance.waiting) == (2, 3)
    with pytest.raises(EngineOverloaded, match="already has 3 requests waiting"):
        engine.submit(a_request("x", 10), 0.1)
    assert engine.statistics.refused == 1
    engine.advance(FAR)
    assert len(engine.take_progress().finished) == 5


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = an_engine(replace(ALONE, kv_tokens=160))
    engine.submit(a_request("fits", 100, 61), 0.0)
    with pytest.raises(
        ContextTooLong, match=r"maximum context length is 160 tokens\..*requested 62 output tokens and your prompt contains 100"
    ):
        engine.submit(a_request("not", 100, 62), 0.0)
    with pytest.raises(ContextTooLong, match="your prompt contains 161 input tokens, which exceeds this limit even without"):
        engine.submit(a_request("never", 161, 1), 0.0)


def test_a_pooled_prompt_is_cached_like_any_other_and_leaves_nothing_behind() -> None:
    engine = an_engine()
    engine.submit(Generation(prompt=b"p" * 640, input_tokens=160, output_tokens=1, pooled=True), 0.0)
    again = submitted(engine, Generation(prompt=b"p" * 640, input_tokens=160, output_tokens=1, pooled=True), 100.0)
    engine.advance(FAR)
    assert again.hit_tokens == 144
    assert engine.statistics.generation_tokens == 0
    assert engine.statistics.request_generation_tokens.count == 2
    assert engine.memory.usage == 0


def test_the_latest_request_is_preempted_and_recomputed_when_blocks_run_out() -> None:
    engine = an_engine(replace(ALONE, kv_tokens=16 * 24))
    first = submitted(engine, a_request("a", 160, 100), 0.0)
    second = submitted(engine, a_request("b", 160, 60), 0.0)
    engine.advance(FAR)
    progress = engine.take_progress()
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert engine.statistics.preemptions == 1
    assert progress.first_tokens == progress.finished == [first, second]
    assert (first.generated, second.generated) == (100, 60)
    assert engine.statistics.generation_tokens == 160
    assert engine.statistics.inter_token_latency.count == 158
    assert engine.memory.usage == 0.0


def test_an_aborted_request_lets_go_of_its_blocks_when_the_step_in_progress_ends() -> None:
    engine = an_engine(replace(ALONE, max_sequences=2))
    decoding = submitted(engine, a_request("d", 100, 1000), 0.0)
    engine.advance(1.0)
    prefilling = submitted(engine, a_request("p", 62_500, 10), 1.0)
    waiting = submitted(engine, a_request("w", 100, 10), 2.0)
    assert [generation.phase for generation in (decoding, prefilling, waiting)] == [Phase.DECODING, Phase.PREFILLING, Phase.WAITING]
    for generation in (waiting, decoding, prefilling, decoding):
        engine.abort(generation, 2.0)
    assert engine.statistics.ended["abort"] == 1, "the one that waited; the others are in the step"
    late = submitted(engine, a_request("l", 625), 2.0)
    engine.advance(FAR)
    assert engine.statistics.ended["abort"] == 3
    assert engine.memory.usage == 0.0
    assert late.admitted_at > 11.0, "the aborted prefill's step still runs to its end"
    assert engine.statistics.ended["length"] == 1
    assert engine.take_progress().finished == [late]


def test_a_slow_request_slows_its_prefill_and_the_steps_it_is_in() -> None:
    engine = an_engine()
    generation = submitted(engine, a_request("a", 625, 11, slow=3.0), 0.0)
    engine.advance(FAR)
    assert generation.first_token_at == pytest.approx(0.3)
    assert generation.finished_at - generation.first_token_at == pytest.approx(decode_seconds(626, 10) + 10 * 0.04)


def test_time_going_back_is_refused() -> None:
    engine = an_engine()
    engine.advance(5.0)
    with pytest.raises(ValueError, match=r"time went back from 5\.0 to 4\.0"):
        engine.advance(4.0)


Arrivals = list[tuple[int, int, int, str, bool]]
arrivals = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 90), st.integers(1, 60), st.sampled_from("abc"), st.booleans()), max_size=12
)
"""Tuples of the milliseconds since the one before, the prompt, the answer, the text, and whether an earlier one is
aborted.
"""
small = st.sampled_from(
    [
        replace(engine, kv_tokens=16 * 12, max_sequences=4, prefill=PrefillCost(fixed=0.003, per_token=0.0005))
        for engine in (ALONE, replace(ALONE, max_batched_tokens=200), CHUNKED, replace(CHUNKED, max_batched_tokens=10))
    ]
)


def run(engine: ServedEngine, plan: Arrivals, pause: float | None) -> list[Generation]:
    """Return the generations, submitted and aborted as planned; the engine is also advanced every `pause` seconds."""
    now, generations = 0.0, []
    for number, (gap, tokens, output, letter, aborted) in enumerate(plan):
        until = now + gap / 1e3
        while pause is not None and now + pause < until:
            now += pause
            engine.advance(now)
            assert engine.memory.free_blocks >= 0
        now = until
        generation = a_request(str(number), tokens, output, text=letter.encode() * (tokens * 4))
        generations.append(submitted(engine, generation, now))
        if aborted:
            engine.abort(generations[number // 2], now)
        assert engine.memory.private_blocks >= 0
        assert engine.memory.free_blocks >= 0
    while (due := engine.next_event_at()) is not None:
        if pause is not None:
            engine.advance(max(engine.now, min(due, engine.now + pause)))
        else:
            engine.advance(due)
        assert engine.memory.free_blocks >= 0
    return generations


@given(small, arrivals, st.floats(0.001, 0.05))
@examples(200)
def test_results_do_not_depend_on_how_often_the_engine_is_advanced(engine: EngineSettings, plan: Arrivals, pause: float) -> None:
    once, often = an_engine(engine), an_engine(engine)
    for one, other in zip(run(once, plan, None), run(often, plan, pause), strict=True):
        assert (one.phase, one.preemptions, one.generated, one.hit_tokens) == (
            other.phase,
            other.preemptions,
            other.generated,
            other.hit_tokens,
        )
        assert one.first_token_at == pytest.approx(other.first_token_at, abs=1e-9)
        assert one.finished_at == pytest.approx(other.finished_at, abs=1e-9)
    assert once.statistics.generation_tokens == often.statistics.generation_tokens
    assert once.statistics.ended == often.statistics.ended
    assert once.statistics.inter_token_latency.count == often.statistics.inter_token_latency.count
    assert once.statistics.inter_token_latency.total == pytest.approx(often.statistics.inter_token_latency.total, abs=1e-6)


@given(small, arrivals, st.floats(0.001, 0.05))
@examples(100)
def test_every_request_ends_once_and_leaves_nothing_behind(engine: EngineSettings, plan: Arrivals, pause: float) -> None:
    served = an_engine(engine)
    generations = run(served, plan, pause)
    progress, statistics = served.take_progress(), served.statistics
    finished = [generation for generation in generations if generation.phase is Phase.FINISHED]
    assert served.instance.running == served.instance.waiting == 0
    assert served.memory.private_blocks == served.memory.pinned_blocks == 0
    assert sorted(map(id, progress.finished)) == sorted(map(id, finished))
    assert statistics.ended["length"] == len(finished)
    assert statistics.ended["abort"] == len(generations) - len(finished)
    assert statistics.generation_tokens == sum(generation.generated for generation in generations)
    for generation in finished:
        assert generation.generated == generation.output_tokens
        assert generation.arrived_at <= generation.admitted_at < generation.first_token_at <= generation.finished_at
    assert all(earlier.finished_at <= later.finished_at for earlier, later in pairwise(progress.finished))


@given(small, arrivals)
@examples(100)
def test_no_event_comes_before_the_announced_time(engine: EngineSettings, plan: Arrivals) -> None:
    served, now = an_engine(engine), 0.0
    for number, (gap, tokens, output, letter, _) in enumerate(plan):
        now += gap / 1e3
        while (due := served.next_event_at()) is not None and due <= now:
            served.advance(due)
            served.take_progress()
        served.advance(now)
        progress = served.take_progress()
        assert progress.first_tokens == progress.finished == []
        served.submit(a_request(str(number), tokens, output, text=letter.encode() * (tokens * 4)), now)
