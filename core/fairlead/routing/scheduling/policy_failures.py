"""An exception of a policy delays no request: it is kept for the next tick, whose caller reports it."""


class PolicyFailures:
    """Keeps only the last exception: a policy that fails once mostly fails again and again."""

    def __init__(self) -> None:
        self._last: Exception | None = None
        self._has_raised = False

    def keep(self, failure: Exception, request: str = "") -> None:
        """Keep an exception of the policy, and the request it was raised for, if any."""
        if request:
            failure.add_note(f"for request {request}")
        self._last = failure

    def raise_last(self) -> None:
        """Raise the kept exception, once; never in two consecutive ticks, since the tick that raises it does nothing
        else.
        """
        failure = None if self._has_raised else self._last
        self._has_raised = failure is not None
        if failure is not None:
            self._last = None
            raise failure
