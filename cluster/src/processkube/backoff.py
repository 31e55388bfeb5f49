"""Computes how long to wait before a crashed process is started again. This module is pure: times are arguments."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays before restarts. The delay doubles with each exit of the process, from `first_seconds` to
    `longest_seconds`.

    After a run of at least `forgive_after_seconds`, the delay is `first_seconds` again.
    """

    first_seconds: float
    longest_seconds: float
    forgive_after_seconds: float
    failures: int = 0

    def after_exit(self, ran_seconds: float) -> tuple["Backoff", float]:
        """Return the state after an exit of the process, and the seconds to wait before the restart. The process ran
        for `ran_seconds`.
        """
        failures = 0 if ran_seconds >= self.forgive_after_seconds else self.failures
        delay = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures, 30))
        return replace(self, failures=failures + 1), delay
