"""Circuit breaker of one instance: closed until failures come in a row, then open, then half open for a single probe.

closed --threshold failures--> open --backoff passes--> half open --probe works--> closed
                                 ^----- probe fails, backoff doubles ----'
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitSettings:
    """Failures in a row that open a circuit; the first and longest time it stays open; how long a probe
    may go without a verdict.
    """

    failures: int = 3
    backoff_seconds: float = 1.0
    longest_backoff_seconds: float = 30.0
    probe_seconds: float = 30.0


class Circuit:
    """The breaker.

    `broken_until` is what candidates are judged by: the instance may be chosen when it is not in the future.
    """

    def __init__(self, settings: CircuitSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._backoff = settings.backoff_seconds
        self._open = False
        self._probe: str | None = None
        self.broken_until = 0.0

    @property
    def is_open(self) -> bool:
        """Open or half open: only a probe may be sent."""
        return self._open

    def admits(self, now: float) -> bool:
        """Whether a request may be dispatched now: closed, or half open without a probe under way."""
        return self.broken_until <= now

    def dispatched(self, request_id: str, now: float) -> None:
        """A request was sent: in a half-open circuit it is the probe, and no other goes until its verdict."""
        if self._open:
            self._probe = request_id
            self.broken_until = now + self._settings.probe_seconds

    def ended(self, request_id: str, now: float) -> None:
        """A request ended; a probe that ended without verdict (its client left) makes room for another."""
        if self._open and self._probe == request_id:
            self._probe = None
            self.broken_until = now

    def worked(self) -> None:
        """The instance answered: closed, whatever was before."""
        self._failures = 0
        self._open = False
        self._probe = None
        self._backoff = self._settings.backoff_seconds
        self.broken_until = 0.0

    def failed(self, now: float) -> None:
        """The instance failed.

        In a row enough: open; while half open: open again for twice as long; while open: nothing new.
        """
        self._failures += 1
        if self._open:
            if self._probe is not None or self.broken_until <= now:
                self._backoff = min(self._backoff * 2, self._settings.longest_backoff_seconds)
                self._probe = None
                self.broken_until = now + self._backoff
        elif self._failures >= self._settings.failures:
            self._open = True
            self.broken_until = now + self._backoff
