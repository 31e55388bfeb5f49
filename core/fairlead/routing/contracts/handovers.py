"""Engines that hand no KV blocks on: when asked to compute a prompt for another instance, they name no blocks in their
answer, so the prompt is computed twice.

An engine without a KV connector accepts such a request and answers as usual. After a few such answers in a row the
engine *rests*: sessions leave it without their blocks, and no request is divided between it and a decode instance. Now
and then the engine is asked once more, as a try. All times are Unix seconds.
"""

ENOUGH = 3
"""Number of answers in a row without blocks after which an engine rests; fewer may be an accident, such as a prompt
shorter than one block.
"""
REST_SECONDS = 300.0
TRY_SECONDS = 30.0
"""Seconds to wait for the outcome of a try before the next try."""


class Handovers:
    """The engines of one pool, by instance."""

    __slots__ = ("_in_vain", "_rests_until")

    def __init__(self) -> None:
        self._in_vain: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether any engine rests."""
        return bool(self._rests_until)

    def note(self, instance: str, now: float, *, named_blocks: bool) -> None:
        """Record whether the engine, which computed a prompt for another instance, named blocks."""
        if named_blocks:
            self.forget(instance)
            return
        in_vain = self._in_vain[instance] = self._in_vain.get(instance, 0) + 1
        if in_vain >= ENOUGH:
            self._rests_until[instance] = now + REST_SECONDS

    def in_vain(self, instance: str) -> int:
        """Return how many of the engine's answers in a row named no blocks, if there are enough for a rest; else 0."""
        return self._in_vain[instance] if instance in self._rests_until else 0

    def rests(self, instance: str, now: float) -> bool:
        """Return whether the engine must not be asked now."""
        return now < self._rests_until.get(instance, now)

    def asked(self, instance: str, now: float) -> None:
        """Record that the engine is asked. After a rest this is the try, and no other request asks until its outcome is
        known.
        """
        if instance in self._rests_until:
            self._rests_until[instance] = now + TRY_SECONDS

    def forget(self, instance: str) -> None:
        """Forget the engine: it hands blocks on, or was replaced by another."""
        self._in_vain.pop(instance, None)
        self._rests_until.pop(instance, None)
