"""Circuit breaker of one instance: closed until failures come in a row, then open, then half open for a single probe.

closed --threshold failures--> open --backoff passes--> half open --probe works--> closed
                                 ^----- probe fails, backoff doubles ----'

Which failures are the instance's own is for its user to find out (`scheduling.circuits`).
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
    """A circuit breaker.

    An instance may be chosen unless `broken_until` is in the future.
    """

    def __init__(self, settings: CircuitSettings) -> None:
        self._settings = settings
        self.failures = 0
        """Consecutive failures."""
        self._backoff = settings.backoff_seconds
        self._open = False
        self._probe: str | None = None
        self.broken_until = 0.0

    @property
    def is_open(self) -> bool:
        """Open or half open: only a probe may be sent."""
        return self._open

    def admits(self, now: float) -> bool:
        """Whether a request may be dispatched now: closed, or half open without a probe in flight."""
        return self.broken_until <= now

    def is_probe(self, request_id: str) -> bool:
        """Whether the request is the probe in flight."""
        return self._open and self._probe == request_id

    def dispatched(self, request_id: str, now: float) -> None:
        """A request was sent: in a half-open circuit it is the probe, and no other request is sent until its outcome.

        A request that is sent before the backoff ends, because all other circuits are open too, is not a probe.
        """
        if self._open and self.broken_until <= now:
            self._probe = request_id
            self.broken_until = now + self._settings.probe_seconds

    def ended(self, request_id: str, now: float) -> None:
        """A request ended; a probe that ended without verdict (its client left) makes room for another."""
        if self.is_probe(request_id):
            self._probe = None
            self.broken_until = now

    def suspected(self, now: float) -> None:
        """The probe failed, perhaps through its own fault: the next probe waits as long as this one did."""
        self._probe = None
        self.broken_until = now + self._backoff

    def probe_failed(self, now: float) -> None:
        """The probe failed through the instance's fault: the next probe waits twice as long."""
        if self._open:
            self._backoff = min(self._backoff * 2, self._settings.longest_backoff_seconds)
            self.broken_until = max(self.broken_until, now + self._backoff)

    def worked(self) -> None:
        """The instance answered: the circuit closes from any state."""
        self.failures = 0
        self._open = False
        self._probe = None
        self._backoff = self._settings.backoff_seconds
        self.broken_until = 0.0

    def lives(self) -> None:
        """An earlier answer continued, so failures so far are not consecutive. An open circuit stays open."""
        if not self._open:
            self.failures = 0

    def failed(self, now: float, beside: int = 0) -> None:
        """The instance failed. After enough failures in a row, with more needed for each request that still runs
        `beside` it: open. While half open: open again for twice as long. While open: no change.
        """
        self.failures += 1
        if self._open:
            if self._probe is not None or self.broken_until <= now:
                self._backoff = min(self._backoff * 2, self._settings.longest_backoff_seconds)
                self._probe = None
                self.broken_until = now + self._backoff
        elif self.failures >= self._settings.failures * (1 + beside):
            self._open = True
            self.broken_until = now + self._backoff

    def excused(self) -> None:
        """A failure that was counted was not the instance's. Without it, a circuit that has had no probe since may be
        closed.
        """
        self.failures = max(0, self.failures - 1)
        untried = self._probe is None and self._backoff == self._settings.backoff_seconds
        if self._open and untried and self.failures < self._settings.failures:
            self._open = False
            self.broken_until = 0.0
