"""Bytes per token, learnt from the engines' counts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.token_sizes import FIRST_PROMPTS, MEMORY_PROMPTS, TokenSizes
from fairlead.tables import EngineFacts


def taught(size: float, prompts: int, *, declared: float = 4, noise: float = 0.1, sizes: TokenSizes | None = None) -> TokenSizes:
    sizes = sizes or TokenSizes(declared)
    dice = random.Random(7)
    for _ in range(prompts):
        text = dice.randrange(100, 20_000)
        sizes.observe(text, max(1, round(text / size * dice.uniform(1 - noise, 1 + noise))))
    return sizes


def test_a_declared_figure_is_used_until_engines_told_enough() -> None:
    sizes = taught(2.0, FIRST_PROMPTS - 1)
    assert sizes.bytes_per_token == 4.0
    assert sizes.tokens(8001) == 2001
    assert sizes.report().error == sizes.report().declared_error == pytest.approx(0.5, abs=0.03)


@given(st.floats(0.6, 60.0))
def test_any_size_of_a_token_is_learnt_within_the_step_from_the_first_prompts(size: float) -> None:
    sizes = taught(size, FIRST_PROMPTS + 500, declared=4)
    assert sizes.bytes_per_token == pytest.approx(size, rel=0.08)


def test_the_error_of_the_learnt_figure_falls_to_the_noise_of_prompts() -> None:
    report = taught(2.1, 2000).report()
    assert report.error is not None
    assert report.declared_error is not None
    assert report.error < 0.08
    assert report.declared_error > 0.4
    assert report.samples == 2000


def test_a_figure_that_is_right_is_never_changed() -> None:
    sizes = TokenSizes(4)
    assert not any(sizes.observe(4 * tokens, tokens) for tokens in range(1, 3000))
    assert sizes.bytes_per_token == 4.0


def test_other_texts_are_followed_in_few_steps() -> None:
    sizes = taught(4.0, 500)
    steps = sum(sizes.observe(2000, 1000) for _ in range(6 * MEMORY_PROMPTS))
    assert sizes.bytes_per_token == pytest.approx(2.0, rel=0.06)
    assert steps <= 5


@pytest.mark.parametrize(("text", "tokens"), [(0, 5), (10, 0), (20, 900), (6500, 100), (-1, -1)])
def test_counts_that_are_no_texts_teach_nothing(text: int, tokens: int) -> None:
    sizes = TokenSizes(4)
    for _ in range(2 * FIRST_PROMPTS):
        assert not sizes.observe(text, tokens)
    assert sizes.samples == 0


def test_a_routing_block_counts_for_as_many_tokens_as_its_bytes_are() -> None:
    engine = EngineFacts(type="vllm", port=8000, block_tokens=512, block_bytes=2048)
    assert TokenSizes(4).counted(engine) is engine
    assert taught(2.0, 400, noise=0.0).counted(engine).block_tokens == pytest.approx(1024, abs=2)
    assert taught(40.0, 400, noise=0.0).counted(engine).block_tokens == pytest.approx(51, abs=1)
