"""Computes how long to wait before a crashed process is started again. Pure: times are arguments."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double with each exit, from `first_seconds` to `longest_seconds`.

    They begin at `first_seconds` again after the process has run for `forgive_after_seconds`.
    """

    first_seconds: float
    longest_seconds: float
    forgive_after_seconds: float
    failures: int = 0

    def after_exit(self, ran_seconds: float) -> tuple["Backoff", float]:
        """Return the next state, and the seconds to wait, after a run that lasted `ran_seconds`."""
        failures = 0 if ran_seconds >= self.forgive_after_seconds else self.failures
        delay = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures, 30))
        return replace(self, failures=failures + 1), delay
