"""Sleep as in vLLM: the effects of `/sleep` and `/wake_up`, and how long they take.

A sleeping engine responds to `/health`, lists its models and accepts requests, which wait until it is awake: nothing in
its responses warns a client. Level 1 moves the weights to the host's memory, and level 2 discards them; both lose the
KV cache. Level 0 only stops computing. An engine that wakes from level 2 has no weights until they are loaded again.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from fairlead_simulator.engine_server.metrics_text import AWAKE
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.request_errors import RequestInvalid

PauseMode = Literal["abort", "wait"]
TAGS = frozenset({"weights", "kv_cache"})
_GAUGES = {0: "", 1: "weights_offloaded", 2: "discard_all"}


class SleepMode:
    """The sleep of an instance with these ranks, and the seconds that falling asleep and waking take."""

    def __init__(self, pacers: Sequence[EnginePacer], *, sleep_seconds: float, wake_seconds: float) -> None:
        self._pacers = pacers
        self._sleep_seconds = sleep_seconds
        self._wake_seconds = wake_seconds
        self._tags: set[str] = set()
        self._turn = asyncio.Lock()
        self.gauges: Mapping[str, int] = AWAKE

    @property
    def is_sleeping(self) -> bool:
        """Whether the instance computes nothing, at any level of sleep."""
        return bool(self._tags) or any(pacer.engine.held is not None for pacer in self._pacers)

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Fall asleep. According to `mode`, running generations are aborted, or the engine waits for their end. Raises
        RequestInvalid while other engines fetch KV blocks from this one.
        """
        async with self._turn:
            for pacer in self._pacers:
                await _pause(pacer, mode)
            if level > 0:
                lost = [pacer.forget_cache() for pacer in self._pacers]
                if not all(lost):
                    raise RequestInvalid("Failed to reset the KV connector cache.", status=500, kind="InternalServerError")
                if not self._tags:
                    await asyncio.sleep(self._sleep_seconds)
                self._tags |= TAGS
            self.gauges = {state: int(state == _GAUGES[level]) for state in AWAKE}

    async def wake(self, tags: Collection[str] | None) -> bool:
        """Wake up, or restore only the parts that `tags` name. Return whether the instance is awake."""
        async with self._turn:
            wanted = TAGS if tags is None else {tag for tag in tags if tag != "scheduling"}
            if self._tags and wanted and wanted <= self._tags | (TAGS if tags is None else set()):
                await asyncio.sleep(self._wake_seconds)
                self._tags -= wanted
            if self._tags:
                return False
            for pacer in self._pacers:
                pacer.resume()
            self.gauges = AWAKE
            return True


async def _pause(pacer: EnginePacer, mode: PauseMode) -> None:
    pacer.pause()
    if mode == "abort":
        pacer.end_all()
    await pacer.until_idle()
