"""The decode batch of one engine. Between two changes of the batch, the step time grows linearly, so the model computes
several steps at once. Such a sequence of steps is called a run.
"""

from heapq import heappop, heappush
from math import sqrt
from typing import Generic

from fairlead_simulator.engine_model.costs import DecodeCost
from fairlead_simulator.engine_model.requests import Phase, RequestT


class DecodeBatch(Generic[RequestT]):
    """The requests of one engine that get one token each in every decode step.

    KV blocks are counted exactly: if a request's last block is full when a step begins, the request takes a new block
    in this step.
    """

    __slots__ = (
        "_block_tokens",
        "_boundaries",
        "_cost",
        "_finishes",
        "_fixed",
        "_sequence",
        "_slow",
        "context_tokens",
        "requests",
        "steps",
    )

    def __init__(self, cost: DecodeCost, block_tokens: int) -> None:
        self._cost = cost
        self._fixed = cost.fixed
        self._slow: dict[RequestT, float] = {}
        self._block_tokens = block_tokens
        self._boundaries = [0] * block_tokens
        """Number of requests that take a new block at a step. The index is the step's number modulo the block size."""
        self._finishes: list[tuple[int, int, RequestT]] = []
        self._sequence = 0
        self.steps = 0
        self.context_tokens = 0
        self.requests: dict[RequestT, None] = {}

    def __len__(self) -> int:
        return len(self.requests)

    def join(self, request: RequestT) -> None:
        """Add a request, which takes part from the next step on. `request.generated` is the number of tokens that it
        already has.
        """
        request.phase = Phase.DECODING
        request.joined_step = self.steps
        request.finish_step = self.steps + request.output_tokens - request.generated
        self.requests[request] = None
        if request.slow_factor != 1.0:
            self._slow[request] = request.slow_factor
            self._slow_down()
        self.context_tokens += request.input_tokens + request.generated
        self._boundaries[self._boundary(request)] += 1
        self._sequence += 1
        request.batch_place = self._sequence
        heappush(self._finishes, (request.finish_step, self._sequence, request))

    def leave(self, request: RequestT) -> None:
        """Remove a request, and update its `generated` to the number of tokens that it has now."""
        self._boundaries[self._boundary(request)] -= 1
        del self.requests[request]
        if self._slow.pop(request, None) is not None:
            self._slow_down()
        request.generated += self.steps - request.joined_step
        self.context_tokens -= request.input_tokens + request.generated

    def next_finish(self) -> int:
        """Return the number of steps until a request of the batch has all its tokens. The batch must not be empty."""
        finishes = self._finishes
        while True:
            step, place, request = finishes[0]
            if request in self.requests and request.batch_place == place:
                return step - self.steps
            heappop(finishes)

    def take(self, steps: int) -> list[RequestT]:
        """Advance by `steps` steps. Return the requests that now have all their tokens; they stay in the batch."""
        self.steps += steps
        self.context_tokens += steps * len(self.requests)
        finishes = self._finishes
        done: list[RequestT] = []
        while finishes and finishes[0][0] <= self.steps:
            _, place, request = heappop(finishes)
            if request in self.requests and request.batch_place == place:
                done.append(request)
        return done

    def step_seconds(self) -> float:
        """Return the seconds of the next step."""
        cost = self._cost
        return self._fixed + cost.per_context_token * self.context_tokens + cost.per_sequence * len(self.requests)

    def seconds(self, steps: int) -> float:
        """Return the seconds of the next `steps` steps together, if the batch does not change."""
        cost, batch = self._cost, len(self.requests)
        first = self._fixed + cost.per_context_token * self.context_tokens + cost.per_sequence * batch
        return steps * first + cost.per_context_token * batch * (steps * (steps - 1) / 2)

    def whole_steps(self, seconds: float) -> int:
        """Return the number of steps, from the next step on, that end within `seconds`."""
        first = self.step_seconds()
        growth = self._cost.per_context_token * len(self.requests)
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
        """Return the number of KV blocks that the batch takes in the next `steps` steps."""
        size, boundaries = self._block_tokens, self._boundaries
        if steps == 1:
            return boundaries[(self.steps + 1) % size]
        cycles, rest = divmod(steps, size)
        start = (self.steps + 1) % size
        end = start + rest
        partial = sum(boundaries[start:end]) + (sum(boundaries[: end - size]) if end > size else 0)
        return cycles * len(self.requests) + partial

    def steps_that_fit(self, wanted: int, available: int) -> int:
        """Return the number of steps, at most `wanted`, for which `available` free KV blocks suffice."""
        size, batch = self._block_tokens, len(self.requests)
        if (wanted // size + 1) * batch <= available:
            return wanted
        cycles, left = divmod(available, batch)
        steps = cycles * size
        for offset in range(1, size + 1):
            left -= self._boundaries[(self.steps + offset) % size]
            if left < 0:
                return min(wanted, steps + offset - 1)
        raise AssertionError("a whole cycle of steps takes one block per request")

    def _slow_down(self) -> None:
        """Multiply the fixed cost of a step by the largest `slow_factor` in the batch."""
        self._fixed = self._cost.fixed * max(self._slow.values(), default=1.0)

    def _boundary(self, request: RequestT) -> int:
        context = request.input_tokens + request.generated
        return (2 + request.joined_step - context) % self._block_tokens
