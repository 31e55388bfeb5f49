"""One engine model that its caller advances to any time.

This module never sleeps and never reads a clock. Requests end at the same times, however often the engine is advanced,
because the model determines when steps end: arrivals and cancellations take effect only at the end of the step in
progress.
"""

from dataclasses import dataclass, field

from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.prefix_tree import BlockWatcher
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.settings import EngineSettings
from fairlead_simulator.engine_model.text_memory import TextMemory
from fairlead_simulator.engine_server.requests import Generation
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded


@dataclass(slots=True)
class ServedProgress:
    """The progress that clients would notice: the generations that got their first token and the generations that
    ended. Both lists are in order of time.
    """

    first_tokens: list[Generation] = field(default_factory=list)
    finished: list[Generation] = field(default_factory=list)


class ServedEngine:
    """An engine model with the limits of its server. `now` is the engine time in seconds; it starts at 0 and never
    decreases.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        bytes_per_token: int,
        max_waiting: int,
        statistics: EngineStatistics,
        watcher: BlockWatcher | None = None,
    ) -> None:
        self.settings = settings
        self.statistics = statistics
        self.now = 0.0
        self.memory = TextMemory(settings.capacity_blocks, settings.block_tokens, settings.block_tokens * bytes_per_token, watcher)
        self.instance: Instance[Generation] = Instance("engine", settings, self.memory, statistics)
        self._max_waiting = max_waiting
        self._progress = ServedProgress()
        self.held: list[Generation] | None = None
        """Generations that arrived while the engine was paused; None if the engine is not paused. No gauge counts these
        generations, because a vLLM engine updates its gauges only when it computes a step.
        """

    @property
    def waiting(self) -> int:
        """Number of waiting generations, including generations that wait for the end of a pause."""
        return self.instance.waiting + len(self.held or ())

    def pause(self) -> None:
        """Hold further generations until `resume` is called. Does nothing if the engine is already paused."""
        if self.held is None:
            self.held = []

    def resume(self, now: float) -> None:
        """End the pause, and begin the generations that arrived during it."""
        held, self.held = self.held or (), None
        self.advance(now)
        for generation in held:
            self.instance.submit(generation, now)

    def submit(self, generation: Generation, now: float) -> None:
        """Queue a generation. Raises EngineOverloaded or ContextTooLong if it cannot be accepted; it is not queued
        then.
        """
        settings = self.settings
        context = generation.input_tokens + generation.output_tokens
        if -(-(context - 1) // settings.block_tokens) > settings.capacity_blocks:
            self.statistics.refused += 1
            raise ContextTooLong(generation.input_tokens, generation.output_tokens, settings.capacity_blocks * settings.block_tokens)
        self.advance(now)
        if self.waiting >= self._max_waiting:
            self.statistics.refused += 1
            raise EngineOverloaded(self.waiting)
        if generation.arrived_at < 0:
            generation.arrived_at = now
        if self.held is not None:
            self.held.append(generation)
        else:
            self.instance.submit(generation, now)

    def release(self, generation: Generation, now: float) -> None:
        """Free the KV blocks that the engine keeps for another engine after the generation has ended."""
        self.advance(now)
        self.instance.release(generation, now)

    def missing_tokens(self, prompt: bytes, tokens: int) -> int:
        """Return the number of tokens that another engine could supply: the tokens in the whole blocks of the prompt's
        first `tokens` tokens that are not cached here.
        """
        return self.memory.missing_tokens(prompt, tokens)

    def adopt(self, prompt: bytes, tokens: int, now: float) -> int:
        """Cache the whole blocks of a prompt's first `tokens` tokens, which arrived from another engine. Return the
        number of tokens that were not cached before.
        """
        self.advance(now)
        return self.memory.adopt(prompt, tokens)

    def abort(self, generation: Generation, now: float) -> None:
        """Abort a generation. Its memory is freed when the step in progress ends.

        Does nothing if the generation has already ended.
        """
        self.advance(now)
        if self.held is not None and generation in self.held:
            self.held.remove(generation)
        elif generation.phase is not Phase.FINISHED and self.instance.has(generation):
            self.instance.abort(generation, now)

    def advance(self, to: float) -> None:
        """Run the model until the engine time `to`. The next call of `take_progress` returns what clients would notice
        of it.
        """
        if to < self.now:
            raise ValueError(f"time went back from {self.now} to {to}")
        instance, progress = self.instance, self._progress
        while (ends := instance.ends_at) is not None and ends <= to:
            result = instance.step_ended(ends)
            progress.first_tokens += result.first_tokens
            progress.finished += result.finished
        instance.count_steps(to)
        self.now = to

    def take_progress(self) -> ServedProgress:
        """Return the progress since the last call: the first tokens and the ends that clients would notice."""
        progress, self._progress = self._progress, ServedProgress()
        return progress

    def next_event_at(self) -> float | None:
        """Return the engine time to which the engine must be advanced next, so that no first token and no end is
        noticed late; None while the engine is idle.
        """
        return self.instance.ends_at
