"""Keeps exceptions raised by a policy until the next tick, which raises them. So an exception delays no request."""


class PolicyFailures:
    """The last exception of a policy. Only the last is kept, because a policy that fails once usually fails
    repeatedly.
    """

    def __init__(self) -> None:
        self._last: Exception | None = None
        self._has_raised = False

    def keep(self, failure: Exception, request: str = "") -> None:
        """Keep an exception of the policy, and the request for which it was raised, if any."""
        if request:
            failure.add_note(f"for request {request}")
        self._last = failure

    def raise_last(self) -> None:
        """Raise the kept exception once. After a call that raised, the next call never raises, because a tick that
        raises does no other work.
        """
        failure = None if self._has_raised else self._last
        self._has_raised = failure is not None
        if failure is not None:
            self._last = None
            raise failure
