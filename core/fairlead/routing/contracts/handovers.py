"""Detection of engines that do not transfer KV blocks. An engine is asked to compute a prompt so that another instance
can fetch the blocks. If the engine does not transfer blocks, its response names no blocks, and the other instance
computes the prompt again.

An engine without a KV connector accepts such a request and responds as usual. After `ENOUGH` such responses in a row
the engine *rests*: it is not asked any more. Sessions then leave it without their blocks, and no request prefills on it
and decodes on another instance. From time to time one request asks the engine again, as a test. All times are Unix
seconds.
"""

ENOUGH = 3
"""Number of consecutive responses without blocks after which an engine rests. A single such response may have another
cause, such as a prompt shorter than one block.
"""
REST_SECONDS = 300.0
TRY_SECONDS = 30.0
"""Seconds to wait for the outcome of a test before the next test."""


class Handovers:
    """Records, for the instances of one pool, which engines transfer their KV blocks."""

    __slots__ = ("_in_vain", "_rests_until")

    def __init__(self) -> None:
        self._in_vain: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Return whether any engine rests."""
        return bool(self._rests_until)

    def note(self, instance: str, now: float, *, named_blocks: bool) -> None:
        """Record whether the engine named blocks in its response, after it computed a prompt for another instance."""
        if named_blocks:
            self.forget(instance)
            return
        in_vain = self._in_vain[instance] = self._in_vain.get(instance, 0) + 1
        if in_vain >= ENOUGH:
            self._rests_until[instance] = now + REST_SECONDS

    def in_vain(self, instance: str) -> int:
        """Return the number of consecutive responses in which the engine named no KV blocks, if the engine rests
        because of these responses; otherwise 0.
        """
        return self._in_vain[instance] if instance in self._rests_until else 0

    def rests(self, instance: str, now: float) -> bool:
        """Return whether the engine rests now, so that it must not be asked to compute prompts for other instances."""
        return now < self._rests_until.get(instance, now)

    def asked(self, instance: str, now: float) -> None:
        """Record that the engine was asked to compute a prompt for another instance. If the engine was resting, this
        request is the test: no other request asks the engine until the outcome is known or `TRY_SECONDS` have passed.
        """
        if instance in self._rests_until:
            self._rests_until[instance] = now + TRY_SECONDS

    def forget(self, instance: str) -> None:
        """Forget the engine's record, because it named blocks or was replaced by another engine."""
        self._in_vain.pop(instance, None)
        self._rests_until.pop(instance, None)
