"""Runs of decode steps, compared with the same steps taken one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.costs import DecodeCost
from fairlead_simulator.engine_model.decode_batch import DecodeBatch
from fairlead_simulator.engine_model.requests import EngineRequest
from fairlead_testing.examples import examples

COST = DecodeCost(fixed=0.02, per_context_token=7.2e-8, per_sequence=0.00005)
lengths = st.lists(st.tuples(st.integers(1, 3000), st.integers(2, 400)), min_size=1, max_size=12)


def batch_of(jobs: list[tuple[int, int]], block_tokens: int = 16) -> DecodeBatch[EngineRequest]:
    batch: DecodeBatch[EngineRequest] = DecodeBatch(COST, block_tokens)
    for tokens, output in jobs:
        job = EngineRequest(input_tokens=tokens, output_tokens=output)
        job.generated = 1
        batch.join(job)
    return batch


def blocks_held(batch: DecodeBatch[EngineRequest], after: int, block_tokens: int = 16) -> int:
    """Return the blocks of all jobs once `after` more steps have stored their tokens."""
    stored = [job.input_tokens + job.generated - 1 + batch.steps - job.joined_step + after for job in batch.requests]
    return sum(-(-tokens // block_tokens) for tokens in stored)


@given(lengths, st.integers(1, 200))
@examples(60)
def test_a_run_takes_as_long_as_its_steps(jobs: list[tuple[int, int]], steps: int) -> None:
    context, expected = sum(tokens + 1 for tokens, _ in jobs), 0.0
    for _ in range(steps):
        expected += COST.fixed + COST.per_context_token * context + COST.per_sequence * len(jobs)
        context += len(jobs)
    assert batch_of(jobs).seconds(steps) == pytest.approx(expected, rel=1e-9)


@given(lengths, st.floats(0, 20))
@examples(60)
def test_whole_steps_are_those_over_in_time(jobs: list[tuple[int, int]], seconds: float) -> None:
    batch = batch_of(jobs)
    steps = batch.whole_steps(seconds)
    assert batch.seconds(steps) <= seconds < batch.seconds(steps + 1)


@given(lengths, st.integers(0, 100), st.integers(0, 200))
@examples(80)
def test_new_blocks_are_those_the_tokens_need(jobs: list[tuple[int, int]], before: int, steps: int) -> None:
    batch = batch_of(jobs)
    batch.take(min(before, batch.next_finish() - 1))
    assert batch.new_blocks(steps) == blocks_held(batch, steps) - blocks_held(batch, 0)


@given(lengths, st.integers(0, 60))
@examples(80)
def test_the_steps_that_fit_are_the_most_that_find_blocks(jobs: list[tuple[int, int]], available: int) -> None:
    batch = batch_of(jobs)
    wanted = batch.next_finish()
    steps = batch.steps_that_fit(wanted, available)
    assert 0 <= steps <= wanted
    assert batch.new_blocks(steps) <= available
    assert steps == wanted or batch.new_blocks(steps + 1) > available


def test_a_job_that_left_and_came_back_to_finish_at_the_same_step_finishes_once() -> None:
    batch = batch_of([(100, 10), (100, 50)])
    job = next(iter(batch.requests))
    batch.leave(job)
    job.generated += 1  # computed again with one more token
    batch.take(1)
    batch.join(job)
    assert batch.next_finish() == 8
    assert batch.take(8) == [job]


def test_jobs_are_done_when_they_have_all_their_tokens() -> None:
    batch = batch_of([(10, 3), (10, 2)])
    assert batch.next_finish() == 1
    first = batch.take(1)
    assert [job.output_tokens for job in first] == [2]
    batch.leave(first[0])
    assert first[0].generated == 2
    assert [job.output_tokens for job in batch.take(batch.next_finish())] == [3]
