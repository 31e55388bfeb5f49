"""Sleep as in vLLM: the effects of `/sleep` and `/wake_up`, and the time that these take.

A sleeping engine still responds to `/health`, lists its models and accepts requests. Its responses do not warn clients
that it sleeps; the accepted requests wait until the engine is awake. At level 0 the engine only stops computing. Level
1 moves the weights to the host's memory, and level 2 discards them; at both levels the KV cache is lost. After level 2,
an awake engine has no weights until they are loaded again.
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
    """The sleep of an instance. `pacers` are those for its ranks; falling asleep takes `sleep_seconds`, waking takes
    `wake_seconds`.
    """

    def __init__(self, pacers: Sequence[EnginePacer], *, sleep_seconds: float, wake_seconds: float) -> None:
        self._pacers = pacers
        self._sleep_seconds = sleep_seconds
        self._wake_seconds = wake_seconds
        self._tags: set[str] = set()
        self._turn = asyncio.Lock()
        self.gauges: Mapping[str, int] = AWAKE

    @property
    def is_sleeping(self) -> bool:
        """Whether the instance sleeps at any level, and so computes nothing."""
        return bool(self._tags) or any(pacer.engine.held is not None for pacer in self._pacers)

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Fall asleep. With the `mode` "abort", running generations are ended at once; with "wait", the engine waits
        for their end. Raises RequestInvalid if KV blocks are still kept for other engines.
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
        """Wake up. If `tags` are given, restore only the parts that they name. Return whether the whole instance is
        awake.
        """
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
