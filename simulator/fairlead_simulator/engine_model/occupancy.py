"""The requests in one engine, from the waiting list to the decode batch, and the memory that they hold."""

from bisect import bisect_left, bisect_right
from collections import deque
from operator import attrgetter
from typing import Generic

from fairlead_simulator.engine_model.decode_batch import DecodeBatch
from fairlead_simulator.engine_model.memory import EngineMemory, EngineObserver
from fairlead_simulator.engine_model.requests import Phase, RequestT
from fairlead_simulator.engine_model.settings import EngineSettings

_PRIORITY = attrgetter("priority")


class Occupancy(Generic[RequestT]):
    """The lists of one engine's requests. A request is in one of `waiting`, `arriving`, `prefilling`, `batch` and
    `leaving`, or has ended.
    """

    def __init__(self, settings: EngineSettings, memory: EngineMemory[RequestT], observer: EngineObserver[RequestT] | None) -> None:
        self.memory = memory
        self.observer = observer
        self.waiting: deque[RequestT] = deque()
        self.arriving: deque[RequestT] = deque()
        """Requests that were prefilled on another instance. Their KV blocks have arrived, and they wait for room to
        decode.
        """
        self.prefilling: list[RequestT] = []
        self.batch: DecodeBatch[RequestT] = DecodeBatch(settings.decode, settings.block_tokens)
        self.leaving: set[RequestT] = set()
        """Requests that were prefilled in this engine, and whose KV blocks are being sent to another instance."""
        self.kept: set[RequestT] = set()
        """Requests that have finished in this engine and whose KV blocks are kept for another engine that may fetch
        them. They are in no other list.
        """
        self.blocked = False
        """Whether the oldest waiting prompt was found not to fit, and nothing has happened afterwards that could change
        this.
        """
        self.preemptions = 0
        self._block_tokens = settings.block_tokens
        self._max_sequences = settings.max_sequences
        self._watermark = memory.capacity // 100
        """Number of blocks kept free while other requests run: 1 % of the capacity, as in vLLM."""

    @property
    def running(self) -> int:
        """Number of requests that hold KV memory in this engine."""
        return len(self.batch.requests) + len(self.prefilling) + len(self.leaving)

    @property
    def full(self) -> bool:
        """Whether the maximum number of requests is running."""
        return self.running >= self._max_sequences

    def has(self, request: RequestT) -> bool:
        """Return whether the request is in any list of this engine."""
        return (
            request in self.batch.requests
            or request in self.leaving
            or request in self.prefilling
            or request in self.waiting
            or request in self.arriving
        )

    def everyone(self) -> list[RequestT]:
        """Return all requests in this engine, in any order."""
        return [*self.waiting, *self.arriving, *self.leaving, *self.prefilling, *self.batch.requests]

    def wait(self, request: RequestT) -> None:
        """Let a request wait behind all requests of the same or a lower number (`EngineRequest.priority`)."""
        waiting = self.waiting
        if not waiting or waiting[-1].priority <= request.priority:
            waiting.append(request)
        else:
            place = bisect_right(waiting, request.priority, key=_PRIORITY)
            waiting.insert(place, request)
            self.blocked = self.blocked and place > 0

    def admit(self, hit_tokens: int, now: float) -> bool:
        """Admit the oldest waiting prompt for prefill if it fits, and return whether it did; if not, it blocks the
        prompts behind it.
        """
        request = self.waiting[0]
        if not self.memory.take_in(request, hit_tokens, self._watermark if self.running else 0):
            self.blocked = True
            return False
        self.waiting.popleft()
        if request.phase is Phase.WAITING and not request.preemptions:
            request.hit_tokens = hit_tokens
            request.admitted_at = now
            if self.observer is not None:
                self.observer.admitted(request, now)
        request.phase = Phase.PREFILLING
        self.prefilling.append(request)
        return True

    def admit_arriving(self) -> None:
        """Admit requests that were prefilled on another instance, in order, as long as they fit."""
        memory = self.memory
        while self.arriving and not self.full:
            request = self.arriving[0]
            blocks = -(-request.input_tokens // self._block_tokens)
            if blocks > memory.available - (self._watermark if self.running else 0):
                return
            self.arriving.popleft()
            memory.allocate(blocks)
            self.batch.join(request)

    def withdraw(self, request: RequestT) -> bool:
        """Remove an aborted request that waits and holds no memory. Return False if it is not waiting."""
        if request in self.waiting:
            self.blocked = self.blocked and request is not self.waiting[0]
            self.waiting.remove(request)
        elif request in self.arriving:
            self.arriving.remove(request)
        else:
            return False
        self._tell_aborted(request)
        return True

    def drop_prefilling(self, request: RequestT) -> None:
        """Release an aborted request whose prompt was being computed."""
        self.prefilling.remove(request)
        self.let_go(request, request.context_tokens)
        self._tell_aborted(request)

    def drop_decoding(self, request: RequestT) -> None:
        """Release an aborted request in the decode batch."""
        self.leave_batch(request)
        self._tell_aborted(request)

    def leave_batch(self, request: RequestT) -> None:
        """Remove from the decode batch a request that gets no more tokens, and release its memory."""
        self.batch.leave(request)
        if self.observer is not None:
            self.observer.stopped_decoding(request)
        # The newest token has not been fed back, so nothing is stored for it yet.
        self.let_go(request, request.context_tokens - 1)

    def let_go(self, request: RequestT, stored_tokens: int) -> None:
        """Free a request's memory. The oldest waiting prompt may fit afterwards."""
        self.memory.let_go(request, stored_tokens)
        self.blocked = False

    def preempt_latest(self) -> None:
        """Preempt a request because there are no free blocks: among the requests with the highest priority number, the
        request that joined the batch last. It returns to the front of the waiting requests with its number.
        """
        request = max(reversed(self.batch.requests), key=_PRIORITY)
        self.leave_batch(request)
        request.phase = Phase.WAITING
        request.preemptions += 1
        self.preemptions += 1
        self.waiting.insert(bisect_left(self.waiting, request.priority, key=_PRIORITY), request)
        # Room only shrinks until a request ends, so it need not be tried before.
        self.blocked = True
        if self.observer is not None:
            self.observer.preempted(request)

    def _tell_aborted(self, request: RequestT) -> None:
        if self.observer is not None:
            self.observer.aborted(request)
