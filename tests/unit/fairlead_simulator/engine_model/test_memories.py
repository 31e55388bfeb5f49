"""One contract for both memories: an engine behaves equally whether prompts are known by block ids or by text."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.engine_model.requests import Phase, RequestT
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_model.text_memory import TextMemory, TextRequest
from fairlead_simulator.engine_model.trace_memory import TracedRequest, TraceMemory
from fairlead_testing.examples import examples

BLOCKS = 16
SMALL = EngineSettings(
    mode="prefill_priority",
    block_tokens=PREFIX_BLOCK_TOKENS,
    kv_tokens=BLOCKS * PREFIX_BLOCK_TOKENS,
    max_batched_tokens=3000,
    max_sequences=6,
    prefill=PrefillCost(fixed=0.01, per_token=0.001, per_pair=1e-8),
    decode=DecodeCost(fixed=0.01, per_context_token=1e-6, per_sequence=0.001),
)
ENGINES = (SMALL, replace(SMALL, mode="chunked", max_batched_tokens=400), replace(SMALL, max_batched_tokens=1))

Plan = tuple[float, int, int, int, bool]
plans = st.lists(
    st.tuples(
        st.floats(0.0, 3.0), st.integers(0, 3), st.integers(1, 3000), st.integers(1, 1500), st.sampled_from([True, False, False, False])
    ),
    min_size=1,
    max_size=14,
)
"""Tuples of the seconds since the request before, the session, the prompt, the answer, and whether it is aborted 1 s
later.
"""


def words(session: int, block: int) -> bytes:
    """Return the text of a session's block; all sessions share their first block."""
    return (b"%03d/%03d " % (session if block else 0, block)) * (PREFIX_BLOCK_TOKENS // 8)


def traced(session: int, tokens: int, output: int) -> TracedRequest:
    blocks = tuple((session * 1000 if block else 0) + block for block in range(tokens // PREFIX_BLOCK_TOKENS))
    return TracedRequest(input_tokens=tokens, output_tokens=output, blocks=blocks)


def written(session: int, tokens: int, output: int) -> TextRequest:
    """Return the request as text: a byte is a token, and the answer is unknown, as in traces."""
    text = b"".join(words(session, block) for block in range(-(-tokens // PREFIX_BLOCK_TOKENS)))[:tokens]
    return TextRequest(input_tokens=tokens, output_tokens=output, prompt=text)


def run(instance: Instance[RequestT], requests: list[RequestT], plan: list[Plan]) -> None:
    """Submit every request and abort some, each at its time; then run the engine to its end."""
    now = 0.0
    events: list[tuple[float, int, Callable[[RequestT, float], None], RequestT]] = []
    for request, (gap, _, _, _, aborted) in zip(requests, plan, strict=True):
        now += gap
        events.append((now, len(events), instance.submit, request))
        if aborted:
            events.append((now + 1.0, len(events), instance.abort, request))
    for at, _, happen, request in sorted(events, key=lambda event: event[:2]):
        while instance.ends_at is not None and instance.ends_at <= at:
            instance.step_ended(instance.ends_at)
        if happen == instance.submit or instance.has(request):
            happen(request, at)
    while instance.ends_at is not None:
        instance.step_ended(instance.ends_at)


def story(requests: list[RequestT]) -> list[tuple[Phase, int, int, int]]:
    return [(one.phase, one.hit_tokens, one.preemptions, one.generated) for one in requests]


def times(requests: list[RequestT]) -> list[float]:
    return [time for one in requests for time in (one.admitted_at, one.first_token_at, one.finished_at)]


@given(st.sampled_from(ENGINES), plans)
@examples(200)
def test_both_memories_give_the_same_hits_preemptions_and_times(engine: EngineSettings, plan: list[Plan]) -> None:
    by_id = [traced(session, tokens, output) for _, session, tokens, output, _ in plan]
    by_text = [written(session, tokens, output) for _, session, tokens, output, _ in plan]
    ids, texts = TraceMemory(BLOCKS, PREFIX_BLOCK_TOKENS, None), TextMemory(BLOCKS, PREFIX_BLOCK_TOKENS, PREFIX_BLOCK_TOKENS)
    run(Instance("ids", engine, ids), by_id, plan)
    run(Instance("texts", engine, texts), by_text, plan)
    assert story(by_id) == story(by_text)
    assert times(by_id) == pytest.approx(times(by_text), abs=1e-9)
    for memory in (ids, texts):
        assert memory.usage == 0.0
        assert memory.available == BLOCKS


def test_the_comparison_sees_hits_evictions_and_preemptions() -> None:
    plan: list[Plan] = [(0.1, number % 3, 1500 + 300 * (number % 4), 900, False) for number in range(12)]
    requests: list[TracedRequest] = [traced(session, tokens, output) for _, session, tokens, output, _ in plan]
    memory = TraceMemory(BLOCKS, PREFIX_BLOCK_TOKENS, None)
    run(Instance("i", SMALL, memory), requests, plan)
    assert any(one.hit_tokens for one in requests)
    assert any(one.preemptions for one in requests)
    assert memory.evicted > 0


def test_a_step_of_prompts_is_not_cut_short_when_a_request_it_does_not_hold_is_given_up() -> None:
    instance: Instance[TracedRequest] = Instance("i", SMALL, TraceMemory(BLOCKS, PREFIX_BLOCK_TOKENS, None))
    decoding, prompt = traced(1, 100, 1000), traced(2, 2000, 2)
    instance.submit(decoding, 0.0)
    while decoding.generated == 0 and instance.ends_at is not None:
        instance.step_ended(instance.ends_at)
    instance.submit(prompt, 0.5)
    begun = instance.ends_at
    assert begun is not None
    instance.step_ended(begun)
    ends = instance.ends_at
    instance.abort(decoding, begun + 0.1)
    assert instance.ends_at == ends
    while instance.ends_at is not None:
        instance.step_ended(instance.ends_at)
    assert prompt.first_token_at == pytest.approx(begun + SMALL.prefill.seconds(2000, 2000))
