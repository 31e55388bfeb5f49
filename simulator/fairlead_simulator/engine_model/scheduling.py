"""Chooses the next step of an engine, in one of two modes.

`prefill_priority` (vLLM V0, DualMap's testbed): if the first waiting prompt fits, the step computes only waiting
prompts; otherwise the step decodes all running requests. `chunked` (vLLM V1): every step decodes all running requests
and fills the rest of its token budget with chunks of prompts.

Consecutive steps with the same requests are computed at once, as a run. For example, if the first request of a batch to
finish needs 40 more tokens, the next 40 decode steps are one run.
"""

from typing import Generic

from fairlead_simulator.engine_model.occupancy import Occupancy
from fairlead_simulator.engine_model.requests import RequestT
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_model.steps import EngineStep, StepKind


class StepScheduler(Generic[RequestT]):
    """Chooses the steps of one engine, and admits the prompts that those steps compute."""

    def __init__(self, settings: EngineSettings, occupancy: Occupancy[RequestT]) -> None:
        self.largest_step_tokens = 0
        """The largest number of tokens in any step so far; counted only with chunked prefill, else 0."""
        self._settings = settings
        self._occupancy = occupancy
        self._fixed_beyond_decode = max(0.0, settings.prefill.fixed - settings.decode.fixed)
        self._chunked = settings.mode == "chunked"

    def next_step(self, now: float) -> EngineStep[RequestT] | None:
        """Return the step that begins now; None if the engine has no work."""
        occupancy = self._occupancy
        if occupancy.arriving:
            occupancy.admit_arriving()
        if self._chunked:
            return self._chunked_step(now)
        if occupancy.waiting and not occupancy.blocked:
            step = self._prefill_step(now)
            if step is not None:
                return step
        return self._decode_step(now) if occupancy.batch.requests else None

    def _prefill_step(self, now: float) -> EngineStep[RequestT] | None:
        settings, occupancy = self._settings, self._occupancy
        seconds, tokens = settings.prefill.fixed, 0
        chunks: list[tuple[RequestT, int]] = []
        while occupancy.waiting and not occupancy.full:
            request = occupancy.waiting[0]
            hits = occupancy.memory.hit_tokens(request)
            loaded = occupancy.memory.loaded_tokens(request, hits)
            context = request.context_tokens
            new = context - hits
            # A prompt above the whole budget runs alone.
            if chunks and tokens + new > settings.max_batched_tokens:
                break
            if not occupancy.admit(hits, now):
                break
            seconds += settings.prefill.variable(new, context) * request.slow_factor + loaded * settings.dram_seconds_per_token
            tokens += new
            chunks.append((request, new))
        return EngineStep(StepKind.PREFILL, now, now + seconds, chunks) if chunks else None

    def _decode_step(self, now: float) -> EngineStep[RequestT] | None:
        """Return a run of decode steps that lasts until a request has all its tokens, or until the free blocks are used
        up. If not even one step has enough blocks, requests are preempted until one step has.
        """
        occupancy = self._occupancy
        batch = occupancy.batch
        while batch.requests:
            steps = batch.steps_that_fit(batch.next_finish(), occupancy.memory.available)
            if steps:
                return EngineStep(StepKind.DECODE, now, now + batch.seconds(steps), [], steps)
            occupancy.preempt_latest()
        occupancy.blocked = False
        return self.next_step(now)

    def _chunked_step(self, now: float) -> EngineStep[RequestT] | None:
        settings, occupancy = self._settings, self._occupancy
        batch, memory = occupancy.batch, occupancy.memory
        if not occupancy.prefilling and (occupancy.blocked or not occupancy.waiting):
            return self._decode_step(now) if batch.requests else None
        new_blocks = batch.new_blocks(1) if batch.requests else 0
        while new_blocks > memory.available:
            occupancy.preempt_latest()
            if not occupancy.running:
                occupancy.blocked = False  # alone it may fit
                return self.next_step(now)
            new_blocks = batch.new_blocks(1)
        memory.allocate(new_blocks)
        budget = settings.max_batched_tokens - len(batch.requests)
        chunks, seconds, budget = self._chunks(budget, now)
        if not chunks:
            if not batch.requests:
                return None  # KV that another engine may fetch holds the memory
            memory.allocate(-new_blocks)
            return self._decode_step(now)
        if settings.max_batched_tokens - budget > self.largest_step_tokens:
            self.largest_step_tokens = settings.max_batched_tokens - budget
        # Decodes and prompts share a step's fixed cost, whichever is larger.
        seconds += batch.step_seconds() + self._fixed_beyond_decode if batch.requests else settings.prefill.fixed
        step = EngineStep(StepKind.MIXED, now, now + seconds, chunks)
        if budget < 1 and len(chunks) == 1:
            self._extend(step, memory.available + new_blocks)
        return step

    def _chunks(self, budget: int, now: float) -> tuple[list[tuple[RequestT, int]], float, int]:
        """Return the chunks of prompts for one step, their seconds, and the unused rest of the token budget. Prompts of
        which a part is already computed come first.
        """
        settings, occupancy = self._settings, self._occupancy
        variable = settings.prefill.variable
        chunks: list[tuple[RequestT, int]] = []
        seconds = 0.0
        for request in occupancy.prefilling:
            if budget < 1:
                break
            tokens = min(budget, request.context_tokens - request.prefilled)
            chunks.append((request, tokens))
            seconds += variable(tokens, request.prefilled + tokens) * request.slow_factor
            budget -= tokens
        while budget > 0 and occupancy.waiting and not occupancy.blocked and not occupancy.full:
            request = occupancy.waiting[0]
            hits = occupancy.memory.hit_tokens(request)
            loaded = occupancy.memory.loaded_tokens(request, hits)
            if not occupancy.admit(hits, now):
                break
            request.prefilled = hits
            tokens = min(budget, request.context_tokens - hits)
            chunks.append((request, tokens))
            seconds += variable(tokens, hits + tokens) * request.slow_factor + loaded * settings.dram_seconds_per_token
            budget -= tokens
        return chunks, seconds, budget

    def _extend(self, step: EngineStep[RequestT], available: int) -> None:
        """Turn a step into a run of several steps if a chunk of one prompt fills the whole budget of this step and of
        the next steps. The run ends before the prompt's last partial chunk. It ends earlier if a request of the decode
        batch ends or if blocks are missing.
        """
        request, tokens = step.chunks[0]
        settings, batch = self._settings, self._occupancy.batch
        steps = 1 + (request.context_tokens - request.prefilled - tokens) // tokens
        if batch.requests:
            steps = min(steps, batch.next_finish())
            steps = batch.steps_that_fit(steps, available)
        if steps < 2:
            return
        ends = step.ends_at
        step.run_ends = [ends]
        for number in range(2, steps + 1):
            ends += settings.prefill.variable(tokens, request.prefilled + number * tokens) * request.slow_factor
            if batch.requests:
                ends += batch.seconds(number) - batch.seconds(number - 1) + self._fixed_beyond_decode
            else:
                ends += settings.prefill.fixed
            step.run_ends.append(ends)
        step.steps, step.ends_at = steps, ends
