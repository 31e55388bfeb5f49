"""One model engine: what it does with the requests it was sent, step by step, when its caller says that a step's time has come.

Two schedulers. `prefill_priority` (vLLM V0, DualMap's testbed): when a step ends and the oldest waiting prompt fits, a step computes waiting
prompts only; otherwise all running requests decode. `chunked` (vLLM V1): every step holds all decodes and fills the rest of its token budget
with pieces of prompts. Runs of decode steps in which nothing changes are taken at once and cut short at the next step's end when a request
arrives. Out of blocks, the request that joined last is preempted and recomputed.

Left out: a chunked prompt takes all its blocks when its first piece runs; answers are not cached, because a trace does not say which block ids
they become; steps of one batch do not speed each other up beyond sharing their fixed cost.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from fairlead_simulator.engine_model.decode_batch import DecodeBatch
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS, DramTier, KvMemory
from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.engine_model.steps import StepKind, StepResult
from fairlead_simulator.simulation.jobs import Job, Phase


class Instance:
    """An engine called `name`. `ends_at` is when the caller must call `step_ended`; `version` changes with it."""

    def __init__(self, name: str, preset: EnginePreset) -> None:
        self.name = name
        self.preset = preset
        self.memory = KvMemory(preset.kv_tokens // preset.block_tokens, preset.block_tokens, caching=preset.dram_tokens is None)
        self.dram = None if preset.dram_tokens is None else DramTier(preset.dram_tokens // PREFIX_BLOCK_TOKENS)
        self.batch = DecodeBatch(preset.decode, preset.block_tokens)
        self.waiting: deque[Job] = deque()
        self.arriving: deque[Job] = deque()
        """Prefilled elsewhere, with their KV here, waiting for room to decode."""
        self.leaving: set[Job] = set()
        """Prefilled here, their KV on the way to another instance."""
        self.ends_at: float | None = None
        self.version = 0
        self.watched = 0
        """The version for whose end the caller has made an appointment."""
        self.preemptions = 0
        self.steps = 0
        self.largest_step_tokens = 0
        """Most tokens any chunked step held."""
        self._fixed_beyond_decode = max(0.0, preset.prefill.fixed - preset.decode.fixed)
        self._chunked = preset.mode == "chunked"
        self._step = StepKind.IDLE
        self._began_at = 0.0
        self._run_steps = 0
        self._run_ends: list[float] = []
        """When each step of a run of chunks ends; empty unless one is under way."""
        self._chunks: list[tuple[Job, int]] = []
        self._prefilling: list[Job] = []
        self._aborted: set[Job] = set()
        """Given up while being computed."""
        self._blocked = False
        """The oldest waiting prompt was found not to fit; nothing that could change this has happened since."""

    @property
    def running(self) -> int:
        """Requests that hold KV memory here."""
        return len(self.batch.jobs) + len(self._prefilling) + len(self.leaving)

    def submit(self, job: Job, now: float) -> None:
        """A request arrives."""
        job.phase = Phase.WAITING
        job.instance = self.name
        self.waiting.append(job)
        self._stir(now)

    def receive(self, job: Job, now: float) -> None:
        """A request prefilled elsewhere arrives with its KV."""
        self.arriving.append(job)
        self._stir(now)

    def holds(self, blocks: Sequence[int]) -> int:
        """Leading prefix blocks that others could fetch from here."""
        return (self.memory if self.dram is None else self.dram).match(blocks, len(blocks))

    def adopt(self, blocks: Sequence[int]) -> None:
        """Leading prefix blocks fetched from another instance are cached here now."""
        if self.dram is None:
            self.memory.adopt(blocks)
        else:
            self.dram.insert(blocks)

    def abort(self, job: Job, now: float) -> None:
        """Drop a request wherever it is; one that is being computed holds its memory until the step in progress ends."""
        if job in self.leaving:
            self.release(job, now)
        elif job in self.waiting:
            self.waiting.remove(job)
        elif job in self.arriving:
            self.arriving.remove(job)
        else:
            self._aborted.add(job)
            self._cut_short(now)

    def release(self, job: Job, now: float) -> None:
        """The KV of a request that was prefilled here has reached its decode instance."""
        self.leaving.discard(job)
        self._let_go(job, job.input_tokens)
        self._stir(now)

    def has(self, job: Job) -> bool:
        """Whether the request is here in any way."""
        return job in self.batch.jobs or job in self.leaving or job in self._prefilling or job in self.waiting or job in self.arriving

    def jobs(self) -> list[Job]:
        """Everything that is here, in no order that matters."""
        return [*self.waiting, *self.arriving, *self.leaving, *self._prefilling, *self.batch.jobs]

    def step_ended(self, now: float) -> StepResult:
        """Finish the step that ends now and begin the next."""
        result = StepResult([], [], [])
        step, self._step, self.ends_at = self._step, StepKind.IDLE, None
        self.version += 1
        self.steps += 1
        aborted = self._aborted
        if aborted:
            self._aborted = set()
        if step is StepKind.DECODE:
            steps = self._run_steps
            self.memory.allocate(self.batch.new_blocks(steps))
            self._finish_decoding(self.batch.take(steps), aborted, now, result)
        elif step is StepKind.PREFILL:
            chunks, self._chunks = self._chunks, []
            for job, _ in chunks:
                if job not in aborted:
                    self._prefilled(job, now, result)
        elif step is StepKind.MIXED:
            chunks, self._chunks = self._chunks, []
            if self._run_ends:
                self._end_chunk_run(chunks)
            self._finish_decoding(self.batch.take(self._run_steps), aborted, now, result)
            for job, tokens in chunks:
                job.prefilled += tokens
                if job not in aborted and job.prefilled == job.input_tokens + job.generated:
                    self._prefilled(job, now, result)
        if aborted:
            for job in [job for job in self._prefilling if job in aborted]:
                self._drop(job)
            for job in [job for job in self.batch.jobs if job in aborted]:
                self._leave_batch(job)
        self._begin(now)
        return result

    # ---- beginning steps

    def _stir(self, now: float) -> None:
        """Something arrived: begin a step if idle; if a run of decode steps is under way, end it with the step in progress."""
        if self.ends_at is None:
            self._begin(now)
        elif self.arriving or (not self._blocked and self._step is StepKind.DECODE):
            # A prompt must not cut a run of chunks, in which there is no room for it.
            self._cut_short(now)

    def _cut_short(self, now: float) -> None:
        """End a run of steps with the step in progress."""
        if self._run_steps < 2 or self.ends_at is None:
            return
        if self._step is StepKind.MIXED:
            done = bisect_left(self._run_ends, now)
            if done + 1 < self._run_steps:
                self._run_steps = done + 1
                self.ends_at = self._run_ends[done]
                self.version += 1
            return
        done = self.batch.whole_steps(now - self._began_at)
        if done + 1 < self._run_steps:
            self._run_steps = done + 1
            self.ends_at = self._began_at + self.batch.seconds(done + 1)
            self.version += 1

    def _begin(self, now: float) -> None:
        if self.arriving:
            self._admit_arriving()
        if self._chunked:
            self._begin_chunked(now)
        elif not (self.waiting and not self._blocked and self._begin_prefill(now)) and self.batch.jobs:
            self._begin_decode(now)

    def _begin_prefill(self, now: float) -> bool:
        preset, cost = self.preset, self.preset.prefill
        seconds, tokens = cost.fixed, 0
        while self.waiting and self.running < preset.max_sequences:
            job = self.waiting[0]
            hits = self._hits(job)
            context = job.input_tokens + job.generated
            new = context - hits * PREFIX_BLOCK_TOKENS
            # A prompt above the whole budget runs alone.
            if self._chunks and tokens + new > preset.max_batched_tokens:
                break
            if not self._admit(job, hits, context):
                self._blocked = True
                break
            seconds += cost.variable(new, context) + hits * PREFIX_BLOCK_TOKENS * preset.dram_seconds_per_token
            tokens += new
            self._chunks.append((job, new))
            self._prefilling.append(job)
        if not self._chunks:
            return False
        self._start(StepKind.PREFILL, now, seconds)
        return True

    def _begin_decode(self, now: float) -> None:
        while self.batch.jobs:
            steps = self.batch.steps_that_fit(self.batch.next_finish(), self.memory.available)
            if steps:
                self._run_steps = steps
                self._start(StepKind.DECODE, now, self.batch.seconds(steps))
                return
            self._preempt_latest()
        self._blocked = False
        self._begin(now)

    def _begin_chunked(self, now: float) -> None:
        preset, batch = self.preset, self.batch
        if not self._prefilling and (self._blocked or not self.waiting):
            if batch.jobs:
                self._begin_decode(now)
            return
        new_blocks = batch.new_blocks(1) if batch.jobs else 0
        while new_blocks > self.memory.available:
            self._preempt_latest()
            new_blocks = batch.new_blocks(1)
        self.memory.allocate(new_blocks)
        chunks, variable = self._chunks, preset.prefill.variable
        budget = preset.max_batched_tokens - len(batch.jobs)
        seconds = 0.0
        for job in self._prefilling:
            if budget < 1:
                break
            tokens = min(budget, job.input_tokens + job.generated - job.prefilled)
            chunks.append((job, tokens))
            seconds += variable(tokens, job.prefilled + tokens)
            budget -= tokens
        while budget > 0 and self.waiting and not self._blocked and self.running < preset.max_sequences:
            job = self.waiting[0]
            hits = self._hits(job)
            context = job.input_tokens + job.generated
            if not self._admit(job, hits, context):
                self._blocked = True
                break
            hit_tokens = job.prefilled = hits * PREFIX_BLOCK_TOKENS
            self._prefilling.append(job)
            tokens = min(budget, context - hit_tokens)
            chunks.append((job, tokens))
            seconds += variable(tokens, hit_tokens + tokens) + hit_tokens * preset.dram_seconds_per_token
            budget -= tokens
        if not chunks:
            if batch.jobs:
                self.memory.allocate(-new_blocks)
                self._begin_decode(now)
            elif self._blocked and not self.running:
                self._blocked = False
                self._begin(now)
            return
        if preset.max_batched_tokens - budget > self.largest_step_tokens:
            self.largest_step_tokens = preset.max_batched_tokens - budget
        # Decodes and prompts share a step's fixed cost, whichever is larger.
        seconds += batch.step_seconds() + self._fixed_beyond_decode if batch.jobs else preset.prefill.fixed
        self._run_steps = 1
        self._start(StepKind.MIXED, now, seconds)
        if budget < 1 and len(chunks) == 1:
            self._extend_chunk_run(new_blocks)

    def _extend_chunk_run(self, new_blocks: int) -> None:
        """One prompt fills this step: take those that it fills after it as one run, as long as the batch does not change."""
        job, tokens = self._chunks[0]
        batch, preset, ends = self.batch, self.preset, self.ends_at
        assert ends is not None, "a step has begun"
        steps = 1 + (job.input_tokens + job.generated - job.prefilled - tokens) // tokens
        if batch.jobs:
            steps = min(steps, batch.next_finish())
            steps = batch.steps_that_fit(steps, self.memory.available + new_blocks)
        if steps < 2:
            return
        self._run_ends = [ends]
        for step in range(2, steps + 1):
            ends += preset.prefill.variable(tokens, job.prefilled + step * tokens)
            if batch.jobs:
                ends += batch.seconds(step) - batch.seconds(step - 1) + self._fixed_beyond_decode
            else:
                ends += preset.prefill.fixed
            self._run_ends.append(ends)
        self._run_steps, self.ends_at = steps, ends

    def _end_chunk_run(self, chunks: list[tuple[Job, int]]) -> None:
        """A run of chunks is over, as long as it was or as it was cut."""
        (job, tokens), steps = chunks[0], self._run_steps
        chunks[0] = (job, tokens * steps)
        self.memory.allocate(self.batch.new_blocks(steps) - self.batch.new_blocks(1))
        self._run_ends = []

    def _start(self, step: StepKind, now: float, seconds: float) -> None:
        self._step = step
        self._began_at = now
        self.ends_at = now + seconds
        self.version += 1

    # ---- admission and memory

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.preset.block_tokens)

    def _hits(self, job: Job) -> int:
        # At least one token is always computed, as its logits are needed.
        usable = min(len(job.blocks), (job.input_tokens + job.generated - 1) // PREFIX_BLOCK_TOKENS)
        return (self.memory if self.dram is None else self.dram).match(job.blocks, usable)

    def _admit(self, job: Job, hits: int, context: int) -> bool:
        """Take the oldest waiting prompt in, if it fits: with a watermark of 1 % kept free while others run, as vLLM does."""
        memory = self.memory
        pinned = hits if memory.caching else 0
        total = self._blocks_for(context)
        if not memory.fits(job.blocks, pinned, total, memory.capacity // 100 if self.running or self._chunks else 0):
            return False
        self.waiting.popleft()
        memory.admit(job.blocks, pinned, total)
        job.held = pinned
        if job.phase is Phase.WAITING and not job.preemptions:
            job.hit_tokens = hits * PREFIX_BLOCK_TOKENS
        job.phase = Phase.PREFILLING
        return True

    def _admit_arriving(self) -> None:
        memory = self.memory
        while self.arriving and self.running < self.preset.max_sequences:
            job = self.arriving[0]
            total = self._blocks_for(job.input_tokens)
            if total > memory.available - (memory.capacity // 100 if self.running else 0):
                return
            self.arriving.popleft()
            memory.allocate(total)
            job.held = 0
            self.batch.join(job)

    def _let_go(self, job: Job, stored_tokens: int) -> None:
        memory = self.memory
        memory.release(job.blocks, job.held, self._blocks_for(stored_tokens) - job.held * memory.per_prefix_block)
        job.held = 0
        self._blocked = False

    def _preempt_latest(self) -> None:
        job = next(reversed(self.batch.jobs))
        self._leave_batch(job)
        job.phase = Phase.WAITING
        job.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(job)
        # Room only shrinks until a request ends, so it need not be tried before.
        self._blocked = True

    # ---- ends of steps

    def _prefilled(self, job: Job, now: float, result: StepResult) -> None:
        self._prefilling.remove(job)
        full = len(job.blocks)
        if self.dram is None:
            job.held = self.memory.publish(job.blocks, job.held, full)
        else:
            self.dram.insert(job.blocks)
        job.generated += 1
        if job.first_token_at < 0:
            job.first_token_at = now
            result.first_tokens.append(job)
        if job.generated >= job.output_tokens:
            self._let_go(job, job.input_tokens + job.generated - 1)
            self._finish(job, now, result)
        elif job.decode_instance is not None and job.decode_instance != self.name:
            job.phase = Phase.TRANSFERRING
            self.leaving.add(job)
            result.transfers.append(job)
        else:
            self.batch.join(job)

    def _finish_decoding(self, done: list[Job], aborted: set[Job], now: float, result: StepResult) -> None:
        for job in done:
            self._leave_batch(job)
            if job not in aborted:
                self._finish(job, now, result)

    def _leave_batch(self, job: Job) -> None:
        self.batch.leave(job)
        # The newest token has not been fed back, so nothing is stored for it yet.
        self._let_go(job, job.input_tokens + job.generated - 1)

    def _drop(self, job: Job) -> None:
        self._prefilling.remove(job)
        self._let_go(job, job.input_tokens + job.generated)

    def _finish(self, job: Job, now: float, result: StepResult) -> None:
        job.phase = Phase.FINISHED
        job.finished_at = now
        result.finished.append(job)
