"""A policy's decision: the chosen instance and the reason. If the policy keeps homes, the request's session is bound to
this instance.
"""

from collections.abc import Callable
from dataclasses import field

from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.reports.decisions import DecisionReason as DecisionReason
from fairlead.values import value


@value
class Decision:
    """A policy's decision. `fallbacks` are other instances in order of preference. `alternate` is the other instance of
    a dual-hash pair. It is the only instance to which the request may move while it is queued.
    """

    instance: str
    reason: DecisionReason
    weigh: Callable[[], Weighing] = field(compare=False, repr=False)
    """A function that returns the values that the policy compared. It is called only for decisions that are recorded,
    and at once, because its result is correct only until the view changes.
    """
    fallbacks: tuple[str, ...] = ()
    alternate: str | None = None
    session: str | None = None
    """The session to bind to `instance`; None = the request's own session. It is set only by policies that also bind
    requests without a session.
    """
    room_tokens: int | None = None
    """KV tokens that must be free on `instance` for the session to move; None = no condition. With a condition, the
    session moves only when the request is sent. If `instance` then has less room, the session stays, and the request is
    sent to the session's present instance.
    """
    overloaded: tuple[str, ...] = ()
    """Instances that the policy found overloaded; the scheduler rebalances their queues."""
    decode: str | None = None
    """The instance where the request should decode, if `instance` only prefills; None = the scheduler selects it."""
    transfer_from: str | None = None
    """The instance from which `instance` should fetch the KV blocks of the prompt's prefix instead of
    computing them.
    """
    ttft_seconds: float | None = None
    """The policy's own prediction of the TTFT on `instance`, in seconds. None if the policy uses the view's prediction.
    The two differ, for example, if the policy takes a transfer into account.
    """

    learn: Callable[[str, float], None] | None = field(default=None, compare=False, repr=False)
    """A function to call with the id of the instance that computed the prompt and the time of the first token (Unix
    seconds). It is not called if the first token cannot be observed, or if the request was queued at another instance
    than the policy chose.
    """

    @property
    def candidates(self) -> tuple[CandidateScore, ...]:
        """The scores of the chosen instance and of the next best instances."""
        return self.weigh().candidates
