"""One model engine, which processes its requests step by step. The engine has no clock, so its caller must report to it
when a step ends.

A step in progress is never undone: arrivals and cancellations take effect at its end. If several steps are computed at
once, as a run, the run is cut short at the end of the step in progress.

Two simplifications: a chunked prompt takes all its blocks when its first chunk is computed; and sequences that are
computed in one batch share the step's fixed cost, but their other costs are added up.
"""

from typing import Generic

from fairlead_simulator.engine_model.memory import EngineMemory, EngineObserver
from fairlead_simulator.engine_model.occupancy import Occupancy
from fairlead_simulator.engine_model.requests import Phase, RequestT
from fairlead_simulator.engine_model.scheduling import StepScheduler
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_model.steps import EngineStep, StepKind, StepResult


class Instance(Generic[RequestT]):
    """A model engine called `name`. The caller must call `step_ended` at the time `ends_at`. `version` increases
    whenever `ends_at` changes.
    """

    def __init__(
        self,
        name: str,
        settings: EngineSettings,
        memory: EngineMemory[RequestT],
        observer: EngineObserver[RequestT] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.memory = memory
        self.version = 0
        self._observer = observer
        self._occupancy: Occupancy[RequestT] = Occupancy(settings, memory, observer)
        self._scheduler = StepScheduler(settings, self._occupancy)
        self._step: EngineStep[RequestT] | None = None
        self._aborted: set[RequestT] = set()
        """Requests that were aborted during the step in progress; the engine drops them at the end of the step."""

    @property
    def ends_at(self) -> float | None:
        """Time at which the step (or run of steps) in progress ends; None while the engine is idle."""
        return None if self._step is None else self._step.ends_at

    @property
    def waiting(self) -> int:
        """Number of requests in the engine's waiting list."""
        return len(self._occupancy.waiting)

    @property
    def running(self) -> int:
        """Number of requests that this engine prefills, decodes, or is sending to another instance."""
        return self._occupancy.running

    @property
    def decoding(self) -> bool:
        """Whether the engine is producing output tokens now; False during a step that computes only prompts."""
        return self._step is not None and self._step.kind is not StepKind.PREFILL and len(self._occupancy.batch) > 0

    @property
    def preemptions(self) -> int:
        return self._occupancy.preemptions

    @property
    def largest_step_tokens(self) -> int:
        """The largest number of tokens in any step so far; counted only with chunked prefill, else 0."""
        return self._scheduler.largest_step_tokens

    def has(self, request: RequestT) -> bool:
        """Return whether the request waits in this engine, is being computed, or is being sent to another instance."""
        return self._occupancy.has(request)

    def sends(self, request: RequestT) -> bool:
        """Return whether the request was prefilled in this engine and its KV blocks are on the way to another
        instance.
        """
        return request in self._occupancy.leaving

    def generated(self, request: RequestT) -> int:
        """Return the number of answer tokens of the request so far, up to the last step that was counted."""
        batch = self._occupancy.batch
        return request.generated + (batch.steps - request.joined_step if request in batch.requests else 0)

    def submit(self, request: RequestT, now: float) -> None:
        """Add a new request, whose prompt this engine must prefill."""
        request.phase = Phase.WAITING
        request.instance = self.name
        self._occupancy.wait(request)
        self._stir(now)

    def receive(self, request: RequestT, now: float) -> None:
        """Add a request that was prefilled on another instance and whose KV blocks have arrived."""
        self._occupancy.arriving.append(request)
        self._stir(now)

    def abort(self, request: RequestT, now: float) -> None:
        """Drop a request, whatever its state. A request that is being computed holds its memory until the step in
        progress ends.
        """
        occupancy, blocked = self._occupancy, self._occupancy.blocked
        if request in occupancy.leaving:
            self.release(request, now)
        elif occupancy.withdraw(request):
            if blocked and not occupancy.blocked:
                self._stir(now)
        else:
            self._aborted.add(request)
            self._cut_short(now)

    def release(self, request: RequestT, now: float) -> None:
        """Free the KV blocks of a request that was prefilled in this engine, because they have reached its decode
        instance or are no longer needed.
        """
        self._occupancy.leaving.discard(request)
        self._occupancy.kept.discard(request)
        self._occupancy.let_go(request, request.input_tokens)
        self._stir(now)

    def die(self) -> list[RequestT]:
        """Stop the engine and drop all its requests. Return the dropped requests, in any order."""
        lost = self._occupancy.everyone()
        self._occupancy = Occupancy(self.settings, self.memory, None)
        self._step = None
        self.version += 1
        return lost

    def count_steps(self, now: float) -> None:
        """Count the steps of the present run that have ended by `now`, so that figures such as `generated` are current.
        The time at which the run ends does not change.
        """
        step, occupancy = self._step, self._occupancy
        done = 0 if step is None else step.over_by(now, occupancy.batch)
        if step is None or done == 0:
            return
        if step.kind is StepKind.MIXED:
            self._count_chunks(step, done)
            self._take(step, done, step.run_ends[done - 1])
            occupancy.memory.allocate(occupancy.batch.new_blocks(1))
            del step.run_ends[:done]
        else:
            end = step.began_at + occupancy.batch.seconds(done)
            occupancy.memory.allocate(occupancy.batch.new_blocks(done))
            self._take(step, done, end)

    def step_ended(self, now: float) -> StepResult[RequestT]:
        """Finish the step that ends now and begin the next."""
        result: StepResult[RequestT] = StepResult([], [], [])
        step, self._step = self._step, None
        assert step is not None, "a step is in progress"
        self.version += 1
        aborted = self._aborted
        if aborted:
            self._aborted = set()
        occupancy = self._occupancy
        if step.kind is StepKind.DECODE:
            occupancy.memory.allocate(occupancy.batch.new_blocks(step.steps))
            self._finish_decoding(self._take(step, step.steps, now), aborted, now, result)
        elif step.kind is StepKind.PREFILL:
            for request, _ in step.chunks:
                if request not in aborted:
                    self._prefilled(request, now, result)
        else:
            if step.run_ends:
                self._count_chunks(step, step.steps)
            else:
                for request, tokens in step.chunks:
                    request.prefilled += tokens
            self._finish_decoding(self._take(step, step.steps, now), aborted, now, result)
            for request, _ in step.chunks:
                if request not in aborted and request.prefilled == request.context_tokens:
                    self._prefilled(request, now, result)
        if aborted:
            for request in [request for request in occupancy.prefilling if request in aborted]:
                occupancy.drop_prefilling(request)
            for request in [request for request in occupancy.batch.requests if request in aborted]:
                occupancy.drop_decoding(request)
        self._begin(now)
        return result

    # ---- beginnings and cuts of steps

    def _begin(self, now: float) -> None:
        self._step = self._scheduler.next_step(now)
        if self._step is not None:
            self.version += 1

    def _stir(self, now: float) -> None:
        """React to a request that arrived or left. If the engine is idle, begin a step. If the engine computes a run of
        decode steps and a waiting request may be admitted, end the run after the step in progress. A request that
        arrived from another instance ends any run in this way.
        """
        if self._step is None:
            self._begin(now)
        elif self._occupancy.arriving or (not self._occupancy.blocked and self._step.kind is StepKind.DECODE):
            # A prompt must not cut a run of chunks, in which there is no room for it.
            self._cut_short(now)

    def _cut_short(self, now: float) -> None:
        """End a run of steps after the step in progress."""
        if self._step is not None and self._step.cut_short(now, self._occupancy.batch):
            self.version += 1

    # ---- ends of steps

    def _take(self, step: EngineStep[RequestT], steps: int, end: float) -> list[RequestT]:
        """Count the first `steps` steps of a run, which have ended. Return the requests that now have all their tokens;
        they stay in the batch.
        """
        batch = self._occupancy.batch
        if self._observer is not None and batch.requests:
            first_end = step.run_ends[0] if step.run_ends else step.began_at + batch.seconds(1) if steps > 1 else end
            self._observer.decoded(len(batch.requests), steps, first_end, end)
        step.steps -= steps
        step.began_at = end
        return batch.take(steps)

    def _count_chunks(self, step: EngineStep[RequestT], steps: int) -> None:
        """Count the finished steps of a run that also computes a chunked prompt: add the prompt's computed tokens, and
        take the blocks that the decode batch needed.
        """
        request, tokens = step.chunks[0]
        request.prefilled += tokens * steps
        batch = self._occupancy.batch
        self._occupancy.memory.allocate(batch.new_blocks(steps) - batch.new_blocks(1))

    def _prefilled(self, request: RequestT, now: float, result: StepResult[RequestT]) -> None:
        occupancy = self._occupancy
        occupancy.prefilling.remove(request)
        occupancy.memory.computed(request)
        request.generated += 1
        if self._observer is not None:
            self._observer.prefilled(request, now)
        if request.first_token_at < 0:
            request.first_token_at = now
            result.first_tokens.append(request)
        if request.generated >= request.output_tokens:
            if request.kept:
                occupancy.kept.add(request)
            else:
                occupancy.let_go(request, request.context_tokens - 1)
            self._finish(request, now, result)
        elif request.decode_instance is not None and request.decode_instance != self.name:
            request.phase = Phase.TRANSFERRING
            occupancy.leaving.add(request)
            result.transfers.append(request)
        else:
            occupancy.batch.join(request)

    def _finish_decoding(self, done: list[RequestT], aborted: set[RequestT], now: float, result: StepResult[RequestT]) -> None:
        for request in done:
            if request in aborted:
                self._occupancy.drop_decoding(request)
            else:
                self._occupancy.leave_batch(request)
                self._finish(request, now, result)

    def _finish(self, request: RequestT, now: float, result: StepResult[RequestT]) -> None:
        request.phase = Phase.FINISHED
        request.finished_at = now
        if self._observer is not None:
            self._observer.finished(request, now)
        result.finished.append(request)
