"""Which prefill engines hand no KV blocks over: their answers name none, so that each prompt is computed twice.

An engine without a KV connector takes the handshake's request and answers as usual. After a few such answers it gets no
prefills: other prefill instances do, or decode instances compute requests whole. Now and then one prefill is tried.
"""

from __future__ import annotations

from collections.abc import Collection

ENOUGH = 3
"""So many prefills in a row without blocks are no accident, such as a prompt that fills no block."""
PAUSE_SECONDS = 300.0
TRY_SECONDS = 30.0
"""How long the outcome of a try is awaited before the next one."""


class Handovers:
    """The prefill instances of one pool. All times are Unix seconds."""

    __slots__ = ("_in_vain", "_silent_until")

    def __init__(self) -> None:
        self._in_vain: dict[str, int] = {}
        self._silent_until: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether any engine hands nothing over."""
        return bool(self._silent_until)

    def keep_only(self, instances: Collection[str]) -> None:
        """Forget all others."""
        for kept in (self._in_vain, self._silent_until):
            for gone in kept.keys() - set(instances):
                del kept[gone]

    def note(self, instance: str, now: float, *, named_blocks: bool) -> int:
        """A prefill ended. Returns how many in a row named no blocks, if these are enough to give up; else 0."""
        if named_blocks:
            self._in_vain.pop(instance, None)
            self._silent_until.pop(instance, None)
            return 0
        in_vain = self._in_vain[instance] = self._in_vain.get(instance, 0) + 1
        if in_vain < ENOUGH:
            return 0
        self._silent_until[instance] = now + PAUSE_SECONDS
        return in_vain

    def is_in_vain(self, instance: str, now: float) -> bool:
        """Whether a prefill there would be computed for nothing. The first question after a pause is let through as a
        try.
        """
        until = self._silent_until.get(instance)
        if until is None or now < until:
            return until is not None
        self._silent_until[instance] = now + TRY_SECONDS
        return False
