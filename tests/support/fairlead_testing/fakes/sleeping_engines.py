"""Engines that sleep and wake in virtual time, for the operator."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.reconciling.observed import EngineSleep


@dataclass(slots=True)
class FakeEngines:
    """Engines by address. Waking takes `wake_seconds`; while `deaf`, what they are told is lost."""

    now: Callable[[], float]
    wake_seconds: float = 5.0
    deaf: bool = False
    asleep: set[str] = field(default_factory=set)
    waking: dict[str, float] = field(default_factory=dict)
    """Since when they wake up."""
    unable: set[str] = field(default_factory=set)
    """Engines without the endpoints."""
    refusing: set[str] = field(default_factory=set)
    """Engines that answer whether they sleep, and refuse to."""
    silent: set[str] = field(default_factory=set)
    told: list[tuple[str, str]] = field(default_factory=list)

    async def is_sleeping(self, address: str) -> EngineSleep:
        if address in self.silent:
            return EngineSleep.SILENT
        if address in self.unable:
            return EngineSleep.UNABLE
        if self.now() - self.waking.get(address, self.now()) >= self.wake_seconds:
            self.rouse(address)
        return EngineSleep.ASLEEP if address in self.asleep else EngineSleep.AWAKE

    async def sleep(self, address: str) -> bool:
        self.told.append(("sleep", address))
        if not self.deaf and address not in self.refusing:
            self.asleep.add(address)
        return address not in self.refusing

    async def wake(self, address: str) -> bool:
        self.told.append(("wake", address))
        if not self.deaf and address in self.asleep:
            self.waking.setdefault(address, self.now())
        return True

    def rouse(self, address: str) -> None:
        """It is awake at once, whoever did it."""
        self.asleep.discard(address)
        self.waking.pop(address, None)
