from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_simulator.engine_requests import EngineEvent, EngineRequest, EngineSettings, EventKind, Generation, Phase
from fairlead_simulator.engines import Engine
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded

SECOND = 1_000_000_000
FAR = 10_000_000 * SECOND


def answer(tokens: int) -> bytes:
    return b"abcd" * tokens


def a_request(name: str, tokens: int, output: int = 1, text: bytes = b"", slow: float = 1.0) -> EngineRequest:
    prompt = text or (name.encode() * (tokens * 4))[: tokens * 4]
    return EngineRequest(id=name, prompt=prompt, prompt_tokens=tokens, max_tokens=output, answer=answer, slow_factor=slow)


def drain(engine: Engine) -> list[EngineEvent]:
    engine.advance(FAR)
    return engine.take_events()


def decode_nanoseconds(context: int, steps: int, batch: int = 1) -> int:
    return sum(20_000_000 + 50_000 * batch + 72 * (context + batch * step) for step in range(steps))


def test_a_lone_request_takes_its_prefill_and_its_decode_steps_exactly() -> None:
    engine = Engine(EngineSettings())
    generation = engine.submit(a_request("a", 6250, 11), 0)
    first, finished = drain(engine)
    assert (first.kind, first.at_ns) == (EventKind.FIRST_TOKEN, SECOND)
    assert (finished.kind, finished.at_ns) == (EventKind.FINISHED, SECOND + decode_nanoseconds(6251, 10))
    assert engine.generated(generation) == 11
    assert engine.statistics.time_to_first_token.total == pytest.approx(1.0)
    assert engine.statistics.inter_token_latency.count == 10
    assert engine.statistics.inter_token_latency.total == pytest.approx(decode_nanoseconds(6251, 10) / 1e9)


def test_waiting_times_of_random_arrivals_follow_the_m_d_1_formula() -> None:
    rng, engine, load = Random(7), Engine(EngineSettings()), 0.5
    service = 625 / 6250
    now, generations = 0.0, []
    for number in range(20_000):
        now += rng.expovariate(load / service)
        request = EngineRequest(id=str(number), prompt=b"short", prompt_tokens=625, max_tokens=1)
        generations.append(engine.submit(request, int(now * SECOND)))
    drain(engine)
    waits = [(generation.admitted_ns - generation.arrived_ns) / SECOND for generation in generations]
    assert sum(waits) / len(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)


def test_prefill_throughput_is_capped_by_its_speed() -> None:
    engine = Engine(EngineSettings(max_waiting=10_000))
    for number in range(1000):
        engine.submit(EngineRequest(id=str(number), prompt=b"x", prompt_tokens=100, max_tokens=1), 0)
    assert drain(engine)[-1].at_ns == 16 * SECOND


def test_a_prompt_seen_before_is_prefilled_from_its_last_block_on() -> None:
    engine = Engine(EngineSettings(prefill_tokens_per_second=1000.0))
    text = bytes(range(256)) * 4
    engine.submit(a_request("a", 256, text=text), 0)
    drain(engine)
    again = engine.submit(a_request("b", 256, text=text), FAR)
    longer = engine.submit(a_request("c", 300, text=text + b"y" * 176), FAR)
    engine.advance(FAR + SECOND)
    assert again.cached_tokens == 240, "at least one token is always computed"
    assert again.first_token_ns - FAR == 16 * SECOND // 1000
    assert longer.cached_tokens == 256
    assert engine.statistics.prefix_hits_tokens == 240 + 256
    assert engine.statistics.prefix_queries_tokens == 256 + 256 + 300


def test_the_next_turn_finds_the_answer_in_the_cache() -> None:
    engine = Engine(EngineSettings())
    prompt = b"p" * 256
    engine.submit(a_request("a", 64, 33, text=prompt), 0)
    drain(engine)
    turn = prompt + answer(33) + b"q" * 64
    second = engine.submit(a_request("b", len(turn) // 4, text=turn), FAR)
    engine.advance(FAR + SECOND)
    assert second.cached_tokens == 96, "64 of the prompt and 32 of the answer; the last token of an answer is never fed back"


def test_blocks_become_visible_when_the_prefill_ends() -> None:
    engine = Engine(EngineSettings())
    text = b"z" * 6400
    first = engine.submit(a_request("a", 1600, text=text), 0)
    second = engine.submit(a_request("b", 1600, text=text), 0)
    drain(engine)
    assert (first.cached_tokens, second.cached_tokens) == (0, 1584)


def test_a_new_prompt_goes_before_the_next_decode_step() -> None:
    engine = Engine(EngineSettings())
    old = engine.submit(a_request("a", 100, 1000), 0)
    engine.advance(SECOND)
    engine.take_events()
    before = engine.generated(old)
    new = engine.submit(a_request("b", 6250), SECOND)
    engine.advance(SECOND + SECOND // 2)
    assert new.phase is Phase.PREFILLING
    assert not engine.decoding
    assert engine.generated(old) == before + 1, "only the step in progress finished"
    engine.advance(3 * SECOND)
    assert new.first_token_ns == new.admitted_ns + SECOND
    assert engine.generated(old) > before + 1


def test_running_and_waiting_limits_hold() -> None:
    engine = Engine(EngineSettings(max_running=2, max_waiting=3))
    for number in range(2):
        engine.submit(a_request(f"r{number}", 10, 1_000_000 // 10_000), number * SECOND // 100)
    engine.advance(SECOND // 10)
    for number in range(3):
        engine.submit(a_request(f"w{number}", 10), SECOND // 10)
    assert (engine.running_count, engine.waiting_count) == (2, 3)
    with pytest.raises(EngineOverloaded, match="already has 3 requests waiting"):
        engine.submit(a_request("x", 10), SECOND // 10)
    assert engine.statistics.refused == 1
    assert sum(event.kind is EventKind.FINISHED for event in drain(engine)) == 5


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = Engine(EngineSettings(kv_cache_tokens=160))
    engine.submit(a_request("fits", 100, 61), 0)
    with pytest.raises(
        ContextTooLong, match=r"maximum context length is 160 tokens\..*requested 62 output tokens and your prompt contains 100"
    ):
        engine.submit(a_request("not", 100, 62), 0)
    with pytest.raises(ContextTooLong, match="your prompt contains 161 input tokens, which exceeds this limit even without"):
        engine.submit(a_request("never", 161, 1), 0)


def test_a_pooled_prompt_is_cached_like_any_other_and_leaves_nothing_behind() -> None:
    engine = Engine(EngineSettings())
    pooled = EngineRequest(id="a", prompt=b"p" * 640, prompt_tokens=160, max_tokens=1, pooled=True)
    engine.submit(pooled, 0)
    drain(engine)
    again = engine.submit(pooled, FAR)
    engine.advance(2 * FAR)
    assert again.cached_tokens == 144
    assert engine.statistics.generation_tokens == 0
    assert engine.statistics.request_generation_tokens.count == 2
    assert engine.blocks.usage == 0


def test_the_latest_request_is_preempted_and_recomputed_when_blocks_run_out() -> None:
    engine = Engine(EngineSettings(kv_cache_tokens=16 * 24))
    first = engine.submit(a_request("a", 160, 100), 0)
    second = engine.submit(a_request("b", 160, 60), 0)
    events = drain(engine)
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert engine.statistics.preemptions == 1
    assert [event.generation.request.id for event in events if event.kind is EventKind.FIRST_TOKEN] == ["a", "b"]
    assert [event.generation.request.id for event in events if event.kind is EventKind.FINISHED] == ["a", "b"]
    assert (first.generated, second.generated) == (100, 60)
    assert engine.statistics.generation_tokens == 160
    assert engine.statistics.inter_token_latency.count == 158
    assert engine.blocks.usage == 0.0


def test_an_abort_frees_the_blocks_in_every_phase() -> None:
    engine = Engine(EngineSettings(max_running=2))
    decoding = engine.submit(a_request("d", 100, 1000), 0)
    engine.advance(SECOND)
    prefilling = engine.submit(a_request("p", 62_500, 10), SECOND)
    engine.advance(2 * SECOND)
    waiting = engine.submit(a_request("w", 100, 10), 2 * SECOND)
    assert [generation.phase for generation in (decoding, prefilling, waiting)] == [Phase.DECODING, Phase.PREFILLING, Phase.WAITING]
    for generation in (waiting, decoding, prefilling, decoding):
        engine.abort(generation, 2 * SECOND)
    assert engine.statistics.finished["abort"] == 3
    assert engine.blocks.usage == 0.0
    late = engine.submit(a_request("l", 625), 2 * SECOND)
    drain(engine)
    assert late.admitted_ns > 11 * SECOND, "the aborted prefill's step still runs to its end"
    assert engine.statistics.finished["length"] == 1


def test_a_slow_request_slows_its_prefill_and_the_steps_it_is_in() -> None:
    engine = Engine(EngineSettings())
    generation = engine.submit(a_request("a", 625, 11, slow=3.0), 0)
    drain(engine)
    assert generation.first_token_ns == 3 * SECOND // 10
    assert generation.finished_ns - generation.first_token_ns == decode_nanoseconds(626, 10) + 10 * 40_000_000


def test_time_going_back_is_refused() -> None:
    engine = Engine(EngineSettings())
    engine.advance(5)
    with pytest.raises(ValueError, match="time went back from 5 to 4"):
        engine.advance(4)


arrivals = st.lists(
    st.tuples(st.integers(0, 400_000_000), st.integers(1, 90), st.integers(1, 60), st.sampled_from("abc"), st.booleans()), max_size=12
)


def run(plan: list[tuple[int, int, int, str, bool]], pause: int | None) -> tuple[Engine, list[Generation], list[tuple[str, str, int]]]:
    engine = Engine(EngineSettings(kv_cache_tokens=16 * 12, max_running=4, prefill_tokens_per_second=2000.0))
    now, generations, events = 0, [], []
    for number, (gap, tokens, output, letter, aborted) in enumerate(plan):
        if pause is not None:
            for moment in range(now, now + gap, pause):
                engine.advance(moment)
        now += gap
        generation = engine.submit(a_request(str(number), tokens, output, text=letter.encode() * (tokens * 4)), now)
        generations.append(generation)
        if aborted:
            engine.abort(generations[number // 2], now)
        assert engine.blocks.private_blocks >= 0
        assert engine.blocks.free_blocks >= 0
    while (due := engine.next_event_ns()) is not None:
        engine.advance(due)
        events += [(event.kind.value, event.generation.request.id, event.at_ns) for event in engine.take_events()]
        assert engine.blocks.free_blocks >= 0
    return engine, generations, events


@given(arrivals, st.integers(1_000_000, 50_000_000))
@settings(max_examples=150, deadline=None)
def test_results_do_not_depend_on_how_often_the_engine_is_advanced(plan: list[tuple[int, int, int, str, bool]], pause: int) -> None:
    once, _, _ = run(plan, None)
    often, generations, events = run(plan, pause)
    assert once.statistics.generation_tokens == often.statistics.generation_tokens
    assert once.statistics.preemptions == often.statistics.preemptions
    assert once.statistics.end_to_end.counts == often.statistics.end_to_end.counts
    assert once.statistics.inter_token_latency.count == often.statistics.inter_token_latency.count
    assert once.statistics.inter_token_latency.total == pytest.approx(often.statistics.inter_token_latency.total, abs=1e-6)
    # conservation
    assert often.running_count == often.waiting_count == 0
    assert often.blocks.private_blocks == often.blocks.pinned_blocks == 0
    assert all(generation.ended for generation in generations)
    assert often.statistics.finished["length"] == sum(generation.phase is Phase.FINISHED for generation in generations)
    assert often.statistics.finished["abort"] == sum(generation.phase is Phase.ABORTED for generation in generations)
    assert often.statistics.generation_tokens == sum(generation.generated for generation in generations)
    for generation in generations:
        if generation.phase is Phase.FINISHED:
            assert generation.generated == generation.request.max_tokens
            assert generation.arrived_ns <= generation.admitted_ns < generation.first_token_ns <= generation.finished_ns
    assert all(earlier[2] <= later[2] for earlier, later in pairwise(events))


@given(arrivals)
@settings(max_examples=100, deadline=None)
def test_no_event_comes_before_the_announced_time(plan: list[tuple[int, int, int, str, bool]]) -> None:
    engine = Engine(EngineSettings(kv_cache_tokens=16 * 12, max_running=4))
    now = 0
    for number, (gap, tokens, output, letter, _) in enumerate(plan):
        now += gap
        while (due := engine.next_event_ns()) is not None and due <= now:
            engine.advance(due)
            assert all(event.at_ns == due for event in engine.take_events())
        engine.advance(now)
        assert engine.take_events() == []
        engine.submit(a_request(str(number), tokens, output, text=letter.encode() * (tokens * 4)), now)
    wakes = 0
    while (due := engine.next_event_ns()) is not None:
        engine.advance(due)
        assert all(event.at_ns == due for event in engine.take_events())
        wakes += 1
    assert wakes <= 40 * len(plan)
