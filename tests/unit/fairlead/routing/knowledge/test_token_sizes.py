"""Bytes per token, learned from the engines' counts."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.token_sizes import (
    FIRST_PROMPTS,
    GIVEN_IDS,
    LEAST,
    MEMORY_PROMPTS,
    MEMORY_SECONDS,
    MOST,
    MOST_KINDS,
    TokenSizes,
)
from fairlead.tables import EngineFacts

TOOLS = "/v1/chat/completions+tools"
CHAT = "/v1/chat/completions"


def taught(
    size: float, prompts: int, *, declared: float = 4, noise: float = 0.1, sizes: TokenSizes | None = None, kind: str = CHAT
) -> TokenSizes:
    sizes = sizes or TokenSizes(declared)
    dice = random.Random(7)
    for _ in range(prompts):
        text = dice.randrange(300, 20_000)
        tokens = max(1, round(text / size * dice.uniform(1 - noise, 1 + noise)))
        sizes.observe(text, tokens, 0.0, kind, text=kind == CHAT)
    return sizes


def test_a_declared_figure_is_used_until_engines_reported_enough() -> None:
    sizes = taught(2.0, FIRST_PROMPTS - 1)
    assert sizes.bytes_per_token == 4.0
    assert sizes.tokens(8001) == 2001
    assert sizes.report().error == sizes.report().declared_error == pytest.approx(0.5, abs=0.03)


@given(st.floats(0.6, 15.0))
def test_any_size_of_a_token_is_learned_within_the_step_from_the_first_prompts(size: float) -> None:
    sizes = taught(size, FIRST_PROMPTS + 500, declared=4)
    assert sizes.bytes_per_token == pytest.approx(size, rel=0.08)


def test_the_error_of_the_learned_figure_falls_to_the_noise_of_prompts() -> None:
    report = taught(2.1, 2000).report()
    assert report.error is not None
    assert report.declared_error is not None
    assert report.error < 0.08
    assert report.declared_error > 0.4
    assert report.samples == 2000


def test_a_figure_that_is_right_is_never_changed() -> None:
    sizes = TokenSizes(4)
    assert not any(sizes.observe(4 * tokens, tokens, 0.0) for tokens in range(1, 3000))
    assert sizes.bytes_per_token == 4.0


def test_other_texts_are_followed_in_few_steps() -> None:
    sizes = taught(4.0, 500)
    steps = sum(sizes.observe(2000, 1000, 0.0) for _ in range(6 * MEMORY_PROMPTS))
    assert sizes.bytes_per_token == 2.0
    assert steps <= 2


@pytest.mark.parametrize(("text", "tokens"), [(0, 5), (1000, 0), (1000, 2001), (16_100, 1000), (-1, -1)])
def test_counts_that_cannot_be_true_teach_nothing(text: int, tokens: int) -> None:
    sizes = TokenSizes(4)
    for _ in range(2 * FIRST_PROMPTS):
        assert not sizes.observe(text, tokens, 0.0)
    assert sizes.samples == 0


def test_a_routing_block_counts_for_as_many_tokens_as_its_bytes_are() -> None:
    engine = EngineFacts(type="vllm", port=8000, block_tokens=512, block_bytes=2048)
    assert TokenSizes(4).counted(engine) is engine
    assert taught(2.0, 400, noise=0.0).counted(engine).block_tokens == pytest.approx(1024, abs=2)
    assert taught(10.0, 400, noise=0.0).counted(engine).block_tokens == pytest.approx(205, abs=1)


def test_requests_with_tools_change_nothing_of_how_plain_text_is_counted() -> None:
    sizes = taught(3.9, 300)
    plain = sizes.tokens(20_000, CHAT)
    taught(1.03, 480, sizes=sizes, kind=TOOLS)
    assert sizes.tokens(20_000, CHAT) == plain
    assert sizes.tokens(20_000, TOOLS) == pytest.approx(20_000 / 1.03, rel=0.05)


def test_a_kind_that_was_not_seen_is_counted_as_plain_text_and_that_as_declared_and_both_are_said() -> None:
    sizes = TokenSizes(4)
    sizes.observe(1000, 900, 0.0, TOOLS, text=False)
    assert [(one.kind, one.bytes_per_token, one.by) for one in sizes.report().kinds] == [(TOOLS, 4.0, "declared")]
    taught(2.0, 200, noise=0.0, sizes=sizes)
    assert sizes.tokens(1000, TOOLS) == sizes.tokens(1000, "/v1/messages") == pytest.approx(500, abs=1)
    assert [(one.kind, one.by) for one in sizes.report().kinds] == [(CHAT, "learned"), (TOOLS, "text")]


def test_a_minority_of_odd_prompts_moves_nothing_however_long_they_are() -> None:
    sizes = TokenSizes(4)
    for number in range(300):
        odd = number % 10 == 0
        sizes.observe(*((400_000, 30_000) if odd else (20_000, 6000)), now=0.0, kind=CHAT)
    assert sizes.bytes_per_token == pytest.approx(20_000 / 6000)


def test_what_was_learned_is_forgotten_with_time() -> None:
    sizes = taught(1.0, 300)
    assert not sizes.forget(MEMORY_SECONDS)
    assert sizes.bytes_per_token == pytest.approx(1.0, rel=0.1)
    assert sizes.forget(MEMORY_SECONDS + 1)
    assert sizes.bytes_per_token == sizes.of(CHAT) == 4.0
    assert not sizes.report().kinds


def test_token_ids_are_counted_exactly_and_teach_nothing() -> None:
    sizes = taught(2.0, 300)
    assert sizes.tokens(4 * 777, GIVEN_IDS) == 777
    assert not sizes.observe(4000, 4000, 0.0, GIVEN_IDS, text=False)


def test_so_many_kinds_and_no_more_are_remembered() -> None:
    sizes = TokenSizes(4)
    for number in range(3 * MOST_KINDS):
        sizes.observe(1000, 300, 0.0, f"kind-{number}", text=False)
    assert len(sizes.report().kinds) == MOST_KINDS


COUNTS = st.one_of(st.integers(-10, 10**9), st.sampled_from([0, 1, 10**18]))


@given(st.lists(st.tuples(COUNTS, COUNTS, st.sampled_from([CHAT, TOOLS])), max_size=300), st.floats(1.5, 6.0), st.integers(1, 64))
def test_after_any_history_figures_are_plausible_and_the_truth_is_learned(
    history: list[tuple[int, int, str]], truth: float, declared: int
) -> None:
    sizes = TokenSizes(declared)
    for text, tokens, kind in history:
        sizes.observe(text, tokens, 0.0, kind, text=kind == CHAT)
        for figure in (sizes.bytes_per_token, sizes.of(CHAT), sizes.of(TOOLS)):
            assert min(LEAST, declared) <= figure <= max(MOST, declared)
            assert sizes.tokens(10**6) < inf
    for kind in (CHAT, TOOLS):
        for _ in range(2 * MEMORY_PROMPTS + FIRST_PROMPTS):
            sizes.observe(10_000, round(10_000 / truth), 1.0, kind, text=kind == CHAT)
    for figure in (sizes.bytes_per_token, sizes.of(CHAT), sizes.of(TOOLS)):
        assert figure == pytest.approx(truth, rel=0.1)
