"""The requests in one engine, from the waiting list to the decode batch, and the memory that these requests hold."""

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
    """The requests of one engine, by state. A request that has not ended is in exactly one of `waiting`, `arriving`,
    `prefilling`, `batch` and `leaving`.
    """

    def __init__(self, settings: EngineSettings, memory: EngineMemory[RequestT], observer: EngineObserver[RequestT] | None) -> None:
        self.memory = memory
        self.observer = observer
        self.waiting: deque[RequestT] = deque()
        self.arriving: deque[RequestT] = deque()
        """Requests that were prefilled on another instance. Their KV blocks have arrived, and they wait until memory is
        free for decoding them.
        """
        self.prefilling: list[RequestT] = []
        self.batch: DecodeBatch[RequestT] = DecodeBatch(settings.decode, settings.block_tokens)
        self.leaving: set[RequestT] = set()
        """Requests that were prefilled in this engine, and whose KV blocks are being sent to another instance."""
        self.kept: set[RequestT] = set()
        """Finished requests whose KV blocks stay in memory, because another engine may fetch them. These requests are
        in no other list.
        """
        self.blocked = False
        """Whether the first waiting prompt was found not to fit, and nothing has happened since that could make it fit.
        """
        self.preemptions = 0
        self._block_tokens = settings.block_tokens
        self._max_sequences = settings.max_sequences
        self._watermark = memory.capacity // 100
        """Number of blocks kept free while other requests run: 1 % of the capacity, as in vLLM."""

    @property
    def running(self) -> int:
        """Number of requests that are prefilled, decoded or being sent to another instance. `kept` requests are not
        counted.
        """
        return len(self.batch.requests) + len(self.prefilling) + len(self.leaving)

    @property
    def full(self) -> bool:
        """Whether the maximum number of requests is running."""
        return self.running >= self._max_sequences

    def has(self, request: RequestT) -> bool:
        """Return whether the engine has the request and the request has not ended."""
        return (
            request in self.batch.requests
            or request in self.leaving
            or request in self.prefilling
            or request in self.waiting
            or request in self.arriving
        )

    def everyone(self) -> list[RequestT]:
        """Return all requests of this engine that have not ended, in any order."""
        return [*self.waiting, *self.arriving, *self.leaving, *self.prefilling, *self.batch.requests]

    def wait(self, request: RequestT) -> None:
        """Add the request to the waiting list, behind all requests whose priority number (`EngineRequest.priority`) is
        equal to or lower than its own.
        """
        waiting = self.waiting
        if not waiting or waiting[-1].priority <= request.priority:
            waiting.append(request)
        else:
            place = bisect_right(waiting, request.priority, key=_PRIORITY)
            waiting.insert(place, request)
            self.blocked = self.blocked and place > 0

    def admit(self, hit_tokens: int, now: float) -> bool:
        """Admit the first waiting prompt for prefill if it fits, and return whether it fits. If it does not fit, the
        prompts behind it wait too.
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
        """Admit requests that were prefilled on another instance, in the order of their arrival, until one does not
        fit.
        """
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
        """Remove an aborted request that holds no memory, because it is waiting or has arrived from another instance.
        Return False if the request is in neither state.
        """
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
        """Remove an aborted request whose prompt was being computed, and free its memory."""
        self.prefilling.remove(request)
        self.let_go(request, request.context_tokens)
        self._tell_aborted(request)

    def drop_decoding(self, request: RequestT) -> None:
        """Remove an aborted request from the decode batch, and free its memory."""
        self.leave_batch(request)
        self._tell_aborted(request)

    def leave_batch(self, request: RequestT) -> None:
        """Remove a request from the decode batch, and free its memory."""
        self.batch.leave(request)
        if self.observer is not None:
            self.observer.stopped_decoding(request)
        # The newest token has not been fed back, so nothing is stored for it yet.
        self.let_go(request, request.context_tokens - 1)

    def let_go(self, request: RequestT, stored_tokens: int) -> None:
        """Free a request's memory. Clear `blocked`, because the first waiting prompt may fit now."""
        self.memory.let_go(request, stored_tokens)
        self.blocked = False

    def preempt_latest(self) -> None:
        """Preempt a request of the decode batch, because no blocks are free: among the requests with the highest
        priority number, the request that joined the batch last. It returns to the waiting list, in front of all
        requests with the same priority number.
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
