"""Engines that sleep and wake in virtual time, for the operator."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.reconciling.observed import EngineSleep


@dataclass(slots=True)
class FakeEngines:
    """Engines by address. Waking takes `wake_seconds`. While `deaf`, engines ignore all commands."""

    now: Callable[[], float]
    wake_seconds: float = 5.0
    deaf: bool = False
    asleep: set[str] = field(default_factory=set)
    waking: dict[str, float] = field(default_factory=dict)
    """For each waking engine, when it began to wake."""
    unable: set[str] = field(default_factory=set)
    """Engines without endpoints for sleeping and waking."""
    refusing: set[str] = field(default_factory=set)
    """Engines that report whether they sleep, but refuse to go to sleep."""
    silent: set[str] = field(default_factory=set)
    told: list[tuple[str, str]] = field(default_factory=list)
    sleep_seconds: float = 0.0
    """The seconds for which an engine still uses its GPU's memory after it reports that it sleeps, as vLLM does."""
    falling: dict[str, float] = field(default_factory=dict)
    """For each sleeping engine, when it went to sleep."""

    async def is_sleeping(self, address: str) -> EngineSleep:
        if address in self.silent:
            return EngineSleep.SILENT
        if address in self.unable:
            return EngineSleep.UNABLE
        if self.now() - self.waking.get(address, self.now()) >= self.wake_seconds:
            self.rouse(address)
        return EngineSleep.ASLEEP if address in self.asleep else EngineSleep.AWAKE

    async def gave_up_memory(self, address: str) -> bool:
        return address not in self.silent | self.unable and self._is_away(address)  # one that wakes still says so

    def has_left(self, address: str) -> bool:
        """Return whether the engine uses no memory of its GPU now."""
        return self._is_away(address) and address not in self.waking

    def _is_away(self, address: str) -> bool:
        return address in self.asleep and self.now() - self.falling.get(address, 0.0) >= self.sleep_seconds

    async def sleep(self, address: str) -> bool:
        self.told.append(("sleep", address))
        if not self.deaf and address not in self.refusing and address not in self.asleep:
            self.asleep.add(address)
            self.falling[address] = self.now()
        return address not in self.refusing

    async def wake(self, address: str) -> bool:
        self.told.append(("wake", address))
        if not self.deaf and address in self.asleep:
            self.waking.setdefault(address, self.now())
        return True

    def rouse(self, address: str) -> None:
        """Make the engine awake at once, as if another program than the operator had woken it."""
        self.asleep.discard(address)
        self.falling.pop(address, None)
        self.waking.pop(address, None)
