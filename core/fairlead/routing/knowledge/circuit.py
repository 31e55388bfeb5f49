"""Circuit breaker of one instance. It is closed until several failures in a row, then open, then half open for a single
request, the probe.

closed --threshold failures--> open --backoff passes--> half open --probe works--> closed
                                 ^----- probe fails, backoff doubles ----'

The caller decides which failures are the instance's fault (`scheduling.circuits`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitSettings:
    """Settings of a circuit: the number of failures in a row that opens the circuit, the shortest and the longest time
    for which it stays open, and the longest time until a probe's outcome is known.
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
        """Whether the circuit is open or half open. At most one request, the probe, may then be sent."""
        return self._open

    def admits(self, now: float) -> bool:
        """Return whether a request may be dispatched now: the circuit is closed, or half open without a probe in
        flight.
        """
        return self.broken_until <= now

    def is_probe(self, request_id: str) -> bool:
        """Whether the request is the probe in flight."""
        return self._open and self._probe == request_id

    def dispatched(self, request_id: str, now: float) -> None:
        """Record that a request was sent. If the circuit is half open, the request is the probe, and no other request
        is sent until the probe's outcome is known.

        A request that is sent before the backoff ends, because the circuits of all other instances are open too, is not
        a probe.
        """
        if self._open and self.broken_until <= now:
            self._probe = request_id
            self.broken_until = now + self._settings.probe_seconds

    def ended(self, request_id: str, now: float) -> None:
        """Record that a request ended. If the request was the probe and its end shows nothing about the instance (for
        example, because the client disconnected), another probe may be sent.
        """
        if self.is_probe(request_id):
            self._probe = None
            self.broken_until = now

    def suspected(self, now: float) -> None:
        """Record that the probe failed, possibly because of the request itself. The wait before the next probe is not
        lengthened.
        """
        self._probe = None
        self.broken_until = now + self._backoff

    def probe_failed(self, now: float) -> None:
        """Record that the probe failed because of the instance: the next probe is sent after twice the wait."""
        if self._open:
            self._backoff = min(self._backoff * 2, self._settings.longest_backoff_seconds)
            self.broken_until = max(self.broken_until, now + self._backoff)

    def worked(self) -> None:
        """Record that the instance served a request: the circuit closes from any state."""
        self.failures = 0
        self._open = False
        self._probe = None
        self._backoff = self._settings.backoff_seconds
        self.broken_until = 0.0

    def lives(self) -> None:
        """Record that the response to an earlier request continued. The failures so far then no longer count as
        failures in a row. An open circuit stays open.
        """
        if not self._open:
            self.failures = 0

    def failed(self, now: float, beside: int = 0) -> None:
        """Record a failure of the instance. After enough failures in a row the circuit opens. `beside` is the number of
        other requests still running on the instance; the number of failures needed is multiplied by 1 + `beside`. If
        the circuit was half open, it opens again for twice as long. An open circuit does not change.
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
        """Record that an earlier failure was not the instance's fault, so that it no longer counts. If the remaining
        failures would not have opened the circuit, the circuit closes, unless a probe has already been sent.
        """
        self.failures = max(0, self.failures - 1)
        untried = self._probe is None and self._backoff == self._settings.backoff_seconds
        if self._open and untried and self.failures < self._settings.failures:
            self._open = False
            self.broken_until = 0.0
