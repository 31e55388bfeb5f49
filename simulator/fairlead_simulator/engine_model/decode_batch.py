"""The decode batch of one engine: runs of steps taken at once, since between two changes of the batch each step only adds its linear growth."""

from heapq import heappop, heappush
from math import sqrt

from fairlead_simulator.engine_model.costs import DecodeCost
from fairlead_simulator.simulation.jobs import Job, Phase


class DecodeBatch:
    """Jobs that get one token per step. Counts KV blocks exactly: at each step, those jobs take a new one whose last is full."""

    __slots__ = ("_block_tokens", "_boundaries", "_cost", "_finishes", "_sequence", "context_tokens", "jobs", "steps")

    def __init__(self, cost: DecodeCost, block_tokens: int) -> None:
        self._cost = cost
        self._block_tokens = block_tokens
        self._boundaries = [0] * block_tokens
        """How many jobs need a new block at steps whose number has this remainder modulo the block size."""
        self._finishes: list[tuple[int, int, Job]] = []
        self._sequence = 0
        self.steps = 0
        self.context_tokens = 0
        self.jobs: dict[Job, None] = {}

    def __len__(self) -> int:
        return len(self.jobs)

    def join(self, job: Job) -> None:
        """From the next step on. `job.generated` counts the tokens it already has."""
        job.phase = Phase.DECODING
        job.joined_step = self.steps
        job.finish_step = self.steps + job.output_tokens - job.generated
        self.jobs[job] = None
        self.context_tokens += job.input_tokens + job.generated
        self._boundaries[self._boundary(job)] += 1
        self._sequence += 1
        job.batch_place = self._sequence
        heappush(self._finishes, (job.finish_step, self._sequence, job))

    def leave(self, job: Job) -> None:
        """Out of the batch, with `generated` brought up to date."""
        self._boundaries[self._boundary(job)] -= 1
        del self.jobs[job]
        job.generated += self.steps - job.joined_step
        self.context_tokens -= job.input_tokens + job.generated

    def next_finish(self) -> int:
        """Steps until the first job of a non-empty batch is done."""
        finishes = self._finishes
        while True:
            step, place, job = finishes[0]
            if job in self.jobs and job.batch_place == place:
                return step - self.steps
            heappop(finishes)

    def take(self, steps: int) -> list[Job]:
        """Advance; returns the jobs now done, which are still in the batch."""
        self.steps += steps
        self.context_tokens += steps * len(self.jobs)
        finishes = self._finishes
        done: list[Job] = []
        while finishes and finishes[0][0] <= self.steps:
            _, place, job = heappop(finishes)
            if job in self.jobs and job.batch_place == place:
                done.append(job)
        return done

    def step_seconds(self) -> float:
        """The next step."""
        cost = self._cost
        return cost.fixed + cost.per_context_token * self.context_tokens + cost.per_sequence * len(self.jobs)

    def seconds(self, steps: int) -> float:
        """The next `steps` steps together, if the batch stays as it is."""
        cost, batch = self._cost, len(self.jobs)
        first = cost.fixed + cost.per_context_token * self.context_tokens + cost.per_sequence * batch
        return steps * first + cost.per_context_token * batch * (steps * (steps - 1) / 2)

    def whole_steps(self, seconds: float) -> int:
        """How many of the next steps are over within `seconds`."""
        first = self.step_seconds()
        growth = self._cost.per_context_token * len(self.jobs)
        if growth > 0:
            linear = first - growth / 2
            steps = int((sqrt(linear * linear + 2 * growth * seconds) - linear) / growth)
        else:
            steps = int(seconds / first)
        # Rounding may leave the closed form one step off either way.
        while steps > 0 and self.seconds(steps) > seconds:
            steps -= 1
        while self.seconds(steps + 1) <= seconds:
            steps += 1
        return steps

    def new_blocks(self, steps: int) -> int:
        """KV blocks the next `steps` steps take."""
        size, boundaries = self._block_tokens, self._boundaries
        if steps == 1:
            return boundaries[(self.steps + 1) % size]
        cycles, rest = divmod(steps, size)
        start = (self.steps + 1) % size
        end = start + rest
        partial = sum(boundaries[start:end]) + (sum(boundaries[: end - size]) if end > size else 0)
        return cycles * len(self.jobs) + partial

    def steps_that_fit(self, wanted: int, available: int) -> int:
        """How many of the next `wanted` steps find their blocks among `available`."""
        size, batch = self._block_tokens, len(self.jobs)
        if (wanted // size + 1) * batch <= available:
            return wanted
        cycles, left = divmod(available, batch)
        steps = cycles * size
        for offset in range(1, size + 1):
            left -= self._boundaries[(self.steps + offset) % size]
            if left < 0:
                return min(wanted, steps + offset - 1)
        raise AssertionError("a whole cycle of steps takes one block per job")

    def _boundary(self, job: Job) -> int:
        context = job.input_tokens + job.generated
        return (2 + job.joined_step - context) % self._block_tokens
