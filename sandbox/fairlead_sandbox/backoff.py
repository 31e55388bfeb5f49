"""How long to wait before starting a crashed process again. Pure: times are arguments."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays doubling from `first_seconds` to `longest_seconds`, forgotten after the process ran for
    `forgive_after_seconds`.
    """

    first_seconds: float
    longest_seconds: float
    forgive_after_seconds: float
    failures: int = 0

    def after_exit(self, ran_seconds: float) -> tuple["Backoff", float]:
        """What to remember, and how many seconds to wait, when a run of `ran_seconds` has ended."""
        failures = 0 if ran_seconds >= self.forgive_after_seconds else self.failures
        delay = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures, 30))
        return replace(self, failures=failures + 1), delay
