"""Engines that hand no KV blocks on: asked to compute a prompt for another instance, their answers name none, so that
the prompt is computed twice.

An engine without a KV connector takes the handshake's request and answers as usual. After a few such answers in a row
it *rests*: sessions leave it without their blocks, and prompts are divided with other prefill instances, or not at all.
Now and then it is tried once. All times are Unix seconds.
"""

ENOUGH = 3
"""Answers in a row without blocks; fewer may be an accident, such as a prompt that fills not one block."""
REST_SECONDS = 300.0
TRY_SECONDS = 30.0
"""Seconds for which the outcome of a try is awaited before the next one."""


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
        """The engine computed a prompt for another instance."""
        if named_blocks:
            self.forget(instance)
            return
        in_vain = self._in_vain[instance] = self._in_vain.get(instance, 0) + 1
        if in_vain >= ENOUGH:
            self._rests_until[instance] = now + REST_SECONDS

    def in_vain(self, instance: str) -> int:
        """How many of its answers in a row named no blocks, if they are enough to let it rest; else 0."""
        return self._in_vain[instance] if instance in self._rests_until else 0

    def rests(self, instance: str, now: float) -> bool:
        """Whether it is not to be asked now."""
        return now < self._rests_until.get(instance, now)

    def asked(self, instance: str, now: float) -> None:
        """It is asked. After a rest this is the try, and nobody else asks until its outcome is known."""
        if instance in self._rests_until:
            self._rests_until[instance] = now + TRY_SECONDS

    def forget(self, instance: str) -> None:
        """The engine hands blocks on, or another one runs there now."""
        self._in_vain.pop(instance, None)
        self._rests_until.pop(instance, None)
