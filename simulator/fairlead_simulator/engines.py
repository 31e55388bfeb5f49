"""A discrete-event model of one vLLM-like engine.

Scheduling gives prefill priority: whenever a step ends and the oldest waiting request fits, its prompt is prefilled, alone (prefill cost is
linear in uncached tokens, so batching prompts would only delay the first of them); otherwise all running requests decode one token. When
the next decode step finds no block, the request that joined last is preempted and recomputed once another request has ended.

The model never sleeps and never looks at a clock: the caller says how far time went. Runs of decode steps in which nothing else happens are
taken in one go, and time is integer nanoseconds, so the result does not depend on how often it is advanced.

Deviations from vLLM: finished output blocks become reusable when their request leaves the engine, not when each is filled; identical
prompts prefilled at the same time end up sharing blocks; an aborted prefill still occupies the engine until its step ends.
"""

from collections import deque
from heapq import heappop, heappush
from math import isqrt

from fairlead_simulator.engine_model.prefix_tree import KvBlockPool
from fairlead_simulator.engine_requests import EngineEvent, EngineRequest, EngineSettings, EventKind, Generation, Phase
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded


class Engine:
    """One engine. `now_ns` starts at 0 and never goes back."""

    def __init__(self, settings: EngineSettings, statistics: EngineStatistics | None = None) -> None:
        self.settings = settings
        self.statistics = statistics or EngineStatistics()
        self.blocks = KvBlockPool(settings.capacity_blocks, settings.block_bytes)
        self.now_ns = 0
        self._waiting: deque[Generation] = deque()
        self._decoding: dict[Generation, None] = {}
        self._prefilling: Generation | None = None
        self._step_ends_ns: int | None = None
        self._step_is_prefill = False
        self._head_blocked = False
        """The oldest waiting request was found not to fit; nothing that could change this has happened since."""
        self._steps = 0
        self._context_tokens = 0
        self._boundary_counts = [0] * settings.block_tokens
        """How many decoding requests need a new block at steps whose number has this remainder modulo the block size."""
        self._finishes: list[tuple[int, int, Generation]] = []
        self._sequence = 0
        self._slow: dict[Generation, float] = {}
        self._last_decode_ns = 0
        self._fresh: list[Generation] = []
        """Decoding requests whose last token came from their prefill."""
        self._events: list[EngineEvent] = []

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        return len(self._decoding) + (self._prefilling is not None)

    @property
    def decoding(self) -> bool:
        """Whether tokens are being produced right now (not while a prefill holds the engine)."""
        return self._step_ends_ns is not None and not self._step_is_prefill

    def generated(self, generation: Generation) -> int:
        """Answer tokens produced so far."""
        if generation.phase is Phase.DECODING:
            return generation.generated + self._steps - generation.joined_step
        return generation.generated

    def submit(self, request: EngineRequest, now_ns: int) -> Generation:
        """Queue a request. Raises EngineOverloaded or ContextTooLong; then nothing is kept of it."""
        settings = self.settings
        if self._blocks_for(request.prompt_tokens + request.max_tokens - 1) > settings.capacity_blocks:
            self.statistics.refused += 1
            raise ContextTooLong(request.prompt_tokens, request.max_tokens, settings.capacity_blocks * settings.block_tokens)
        self.advance(now_ns)
        if len(self._waiting) >= settings.max_waiting:
            self.statistics.refused += 1
            raise EngineOverloaded(len(self._waiting))
        generation = Generation(request, now_ns)
        self._waiting.append(generation)
        self.advance(now_ns)
        return generation

    def abort(self, generation: Generation, now_ns: int) -> None:
        """Drop a request and let go of its blocks; nothing happens when it has already ended."""
        self.advance(now_ns)
        if generation.ended:
            return
        if generation.phase is Phase.WAITING:
            self._waiting.remove(generation)
        elif generation.phase is Phase.PREFILLING:
            self._prefilling = None
            self._let_go_of_prefill(generation)
        else:
            self._stop_decoding(generation)
        generation.phase = Phase.ABORTED
        generation.finished_ns = self.now_ns
        self._head_blocked = False
        self.statistics.finished["abort"] += 1
        self.advance(now_ns)

    def advance(self, to_ns: int) -> None:
        """Let the engine work until `to_ns`. What clients would have seen is then in `take_events`."""
        if to_ns < self.now_ns:
            raise ValueError(f"time went back from {self.now_ns} to {to_ns}")
        while True:
            if self._step_ends_ns is not None:
                if self._step_ends_ns > to_ns:
                    break
                self._finish_step()
            elif not self._begin_prefill():
                if not self._decoding:
                    break
                self._decode_until(to_ns)
        self.now_ns = to_ns

    def take_events(self) -> list[EngineEvent]:
        """First tokens and completions since the last call, in order."""
        events, self._events = self._events, []
        return events

    def next_event_ns(self) -> int | None:
        """When the engine must be advanced next for a first token or completion to be seen in time; None while it is idle.

        Never later than the next such event; may be earlier.
        """
        ends = self._step_ends_ns
        if ends is None or self._step_is_prefill:
            return ends
        if self._waiting and self._may_begin_prefill():
            return ends
        self._drop_stale_finishes()
        if not self._finishes:
            return ends
        steps = self._finishes[0][0] - self._steps - 1
        if steps <= 0:
            return ends
        fitting = self._steps_that_fit(steps + 1) - 1
        return ends + self._decode_nanoseconds(max(0, min(steps, fitting)), self._context_tokens + len(self._decoding))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_tokens)

    # ---- prefill

    def _may_begin_prefill(self) -> bool:
        return not self._head_blocked and len(self._decoding) < self.settings.max_running

    def _begin_prefill(self) -> bool:
        if not self._waiting or not self._may_begin_prefill():
            return False
        generation = self._waiting[0]
        request, settings = generation.request, self.settings
        text = generation.context_text()
        tokens = request.prompt_tokens + generation.generated
        # At least one token is always computed, as its logits are needed.
        reusable = min((tokens - 1) // settings.block_tokens, len(text) // settings.block_bytes)
        known, unpinned = self.blocks.match(text, reusable)
        needed = self._blocks_for(tokens) - known
        # One block is left to each running request, or admitting this one would preempt another at the next boundary.
        reserve = len(self._decoding) + 1 if self._decoding else 0
        if needed + unpinned + reserve > self.blocks.available_blocks:
            self._head_blocked = True
            return False
        self._waiting.popleft()
        generation.node, generation.tree_blocks = self.blocks.pin(text, reusable)
        self.blocks.allocate(needed)
        hit_tokens = known * settings.block_tokens
        if generation.admitted_ns < 0:
            generation.admitted_ns = self.now_ns
            generation.cached_tokens = hit_tokens
            self.statistics.prefix_queries_tokens += tokens
            self.statistics.prefix_hits_tokens += hit_tokens
            self.statistics.observe(self.statistics.queue_time, self.now_ns - generation.arrived_ns)
        seconds = (tokens - hit_tokens) * request.slow_factor / settings.prefill_tokens_per_second
        generation.phase = Phase.PREFILLING
        self._prefilling = generation
        self._step_is_prefill = True
        self._step_ends_ns = self.now_ns + max(1, round(seconds * 1e9))
        return True

    def _finish_prefill(self) -> None:
        generation = self._prefilling
        if generation is None:  # aborted meanwhile
            return
        self._prefilling = None
        request, statistics = generation.request, self.statistics
        text = generation.context_text()
        tokens = request.prompt_tokens + generation.generated
        full = min(tokens // self.settings.block_tokens, len(text) // self.settings.block_bytes)
        assert generation.node is not None, "a prefilling request holds a node"
        generation.node = self.blocks.share(generation.node, generation.tree_blocks, text, full)
        generation.tree_blocks = max(full, generation.tree_blocks)
        generation.generated += 1
        statistics.generation_tokens += not request.pooled
        if generation.first_token_ns < 0:
            generation.first_token_ns = self.now_ns
            statistics.prompt_tokens += request.prompt_tokens
            statistics.prompt_tokens_cached += generation.cached_tokens
            statistics.observe(statistics.time_to_first_token, self.now_ns - generation.arrived_ns)
            statistics.observe(statistics.prefill_time, self.now_ns - generation.admitted_ns)
            self._events.append(EngineEvent(EventKind.FIRST_TOKEN, generation, self.now_ns))
        else:
            statistics.observe(statistics.inter_token_latency, self.now_ns - generation.last_token_ns)
        generation.last_token_ns = self.now_ns
        self._start_decoding(generation)
        if generation.generated >= request.max_tokens:
            self._finish(generation)

    def _let_go_of_prefill(self, generation: Generation) -> None:
        assert generation.node is not None, "a prefilling request holds a node"
        tokens = generation.request.prompt_tokens + generation.generated
        self.blocks.free(self._blocks_for(tokens) - generation.tree_blocks)
        self.blocks.release(generation.node)
        generation.node = None

    # ---- decode

    def _start_decoding(self, generation: Generation) -> None:
        context = generation.request.prompt_tokens + generation.generated
        generation.phase = Phase.DECODING
        generation.joined_step = self._steps
        generation.finish_step = self._steps + generation.request.max_tokens - generation.generated
        self._decoding[generation] = None
        self._context_tokens += context
        self._boundary_counts[self._boundary(generation)] += 1
        self._sequence += 1
        heappush(self._finishes, (generation.finish_step, self._sequence, generation))
        self._fresh.append(generation)
        if generation.request.slow_factor != 1.0:
            self._slow[generation] = generation.request.slow_factor

    def _boundary(self, generation: Generation) -> int:
        """Remainder of the numbers of those steps that store their first token of a new block for this request."""
        context_at_join = generation.request.prompt_tokens + generation.generated
        return (2 + generation.joined_step - context_at_join) % self.settings.block_tokens

    def _stop_decoding(self, generation: Generation) -> None:
        """Take it out of the batch; what it filled becomes cached, the rest free."""
        settings, request = self.settings, generation.request
        self._boundary_counts[self._boundary(generation)] -= 1
        del self._decoding[generation]
        self._slow.pop(generation, None)
        if generation in self._fresh:
            self._fresh.remove(generation)
        else:
            generation.last_token_ns = self._last_decode_ns
        generation.generated = self.generated(generation)
        self._context_tokens -= request.prompt_tokens + generation.generated
        stored_tokens = request.prompt_tokens + generation.generated - 1  # the newest token has not been fed back yet
        held = self._blocks_for(stored_tokens)
        assert generation.node is not None, "a decoding request holds a node"
        full = generation.tree_blocks
        if stored_tokens // settings.block_tokens > full and request.answer is not None:
            text = generation.context_text()
            full = max(full, min(stored_tokens // settings.block_tokens, len(text) // settings.block_bytes))
            generation.node = self.blocks.share(generation.node, generation.tree_blocks, text, full)
        self.blocks.free(held - full)
        self.blocks.release(generation.node)
        generation.node = None
        generation.tree_blocks = 0

    def _finish(self, generation: Generation) -> None:
        self._stop_decoding(generation)
        generation.phase = Phase.FINISHED
        generation.finished_ns = self.now_ns
        self._head_blocked = False
        statistics = self.statistics
        statistics.finished[generation.request.finish_reason] += 1
        statistics.observe(statistics.end_to_end, self.now_ns - generation.arrived_ns)
        decode_ns = self.now_ns - generation.first_token_ns
        statistics.observe(statistics.decode_time, decode_ns)
        if generation.generated > 1:
            statistics.observe(statistics.time_per_output_token, decode_ns // (generation.generated - 1))
        statistics.request_prompt_tokens.observe(generation.request.prompt_tokens)
        statistics.request_generation_tokens.observe(0 if generation.request.pooled else generation.generated)
        self._events.append(EngineEvent(EventKind.FINISHED, generation, self.now_ns))

    def _preempt_latest(self) -> None:
        generation = next(reversed(self._decoding))
        self._stop_decoding(generation)
        generation.phase = Phase.WAITING
        generation.preemptions += 1
        self.statistics.preemptions += 1
        self._waiting.appendleft(generation)
        # Room only shrinks until a request ends, so it need not be tried before.
        self._head_blocked = True

    def _decode_until(self, to_ns: int) -> None:
        """From a step boundary: take whole steps up to `to_ns` or the next change of the batch, or leave one step in progress."""
        self._drop_stale_finishes()
        until_finish = self._finishes[0][0] - self._steps
        steps = self._steps_that_fit(until_finish)
        if steps == 0:
            self._preempt_latest()
            return
        in_time = self._steps_within(to_ns - self.now_ns)
        if in_time == 0:
            self._step_is_prefill = False
            self._step_ends_ns = self.now_ns + self._decode_nanoseconds(1, self._context_tokens)
            return
        steps = min(steps, in_time)
        self._take_steps(steps, self.now_ns + self._decode_nanoseconds(steps, self._context_tokens))

    def _finish_step(self) -> None:
        ends = self._step_ends_ns
        assert ends is not None, "a step is in progress"
        self._step_ends_ns = None
        if self._step_is_prefill:
            self.now_ns = ends
            self._finish_prefill()
        else:
            self._take_steps(1, ends)

    def _take_steps(self, steps: int, ends_ns: int) -> None:
        batch = len(self._decoding)
        self.blocks.allocate(self._new_blocks(steps))
        self._observe_tokens(steps, batch, ends_ns)
        self._steps += steps
        self._context_tokens += steps * batch
        self.statistics.generation_tokens += steps * batch
        self.now_ns = self._last_decode_ns = ends_ns
        while self._finishes and self._finishes[0][0] <= self._steps:
            _, _, generation = heappop(self._finishes)
            if generation.phase is Phase.DECODING and generation.finish_step == self._steps:
                self._finish(generation)

    def _observe_tokens(self, steps: int, batch: int, ends_ns: int) -> None:
        """Time between tokens: the first step's gap reaches back over a prefill, the others take their mean."""
        if batch == 0:
            self._fresh.clear()
            return
        statistics = self.statistics
        per_step = (ends_ns - self.now_ns) // steps
        first_end = ends_ns if steps == 1 else self.now_ns + per_step
        for generation in self._fresh:
            statistics.observe(statistics.inter_token_latency, first_end - generation.last_token_ns)
        older = batch - len(self._fresh)
        if older:
            statistics.observe(statistics.inter_token_latency, first_end - self._last_decode_ns, older)
        if steps > 1:
            statistics.observe(statistics.inter_token_latency, per_step, (steps - 1) * batch)
        self._fresh.clear()

    def _drop_stale_finishes(self) -> None:
        finishes = self._finishes
        while finishes:
            step, _, generation = finishes[0]
            if generation.phase is Phase.DECODING and generation.finish_step == step:
                return
            heappop(finishes)

    def _step_costs(self, context_tokens: int) -> tuple[int, int]:
        """Nanoseconds of the next step, and by how much each further step is longer."""
        settings, batch = self.settings, len(self._decoding)
        fixed = settings.decode_step_nanoseconds
        if self._slow:
            fixed = round(fixed * max(self._slow.values()))
        growth = settings.decode_nanoseconds_per_context_token * batch
        first = fixed + settings.decode_nanoseconds_per_sequence * batch + settings.decode_nanoseconds_per_context_token * context_tokens
        return max(1, first), growth

    def _decode_nanoseconds(self, steps: int, context_tokens: int) -> int:
        first, growth = self._step_costs(context_tokens)
        return steps * first + growth * (steps * (steps - 1) // 2)

    def _steps_within(self, nanoseconds: int) -> int:
        """The largest number of whole steps that take at most `nanoseconds`."""
        first, growth = self._step_costs(self._context_tokens)
        if growth == 0:
            return nanoseconds // first
        linear = 2 * first - growth
        return (isqrt(linear * linear + 8 * growth * nanoseconds) - linear) // (2 * growth)

    def _new_blocks(self, steps: int) -> int:
        """Blocks the next `steps` decode steps need."""
        size = self.settings.block_tokens
        cycles, rest = divmod(steps, size)
        counts, base = self._boundary_counts, self._steps
        return cycles * len(self._decoding) + sum(counts[(base + offset) % size] for offset in range(1, rest + 1))

    def _steps_that_fit(self, wanted: int) -> int:
        """How many of the next `wanted` decode steps find blocks without preempting anyone."""
        size, batch = self.settings.block_tokens, len(self._decoding)
        available = self.blocks.available_blocks
        if (wanted // size + 1) * batch <= available:
            return wanted
        cycles, left = divmod(available, batch)
        steps = cycles * size
        for offset in range(1, size + 1):
            left -= self._boundary_counts[(self._steps + offset) % size]
            if left < 0:
                return min(wanted, steps + offset - 1)
        raise AssertionError("a whole cycle of steps needs one block per request")
