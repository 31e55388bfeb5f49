"""A policy's answer: the instance, and the reason. If the policy keeps homes, the instance becomes the home of the
request's session.
"""

from collections.abc import Callable
from dataclasses import field

from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.reports.decisions import DecisionReason as DecisionReason
from fairlead.values import value


@value
class Decision:
    """A policy's decision. `fallbacks` are in order of preference; `alternate` is the other member of a dual-hash pair,
    the only instance to which the request may move while it is queued.
    """

    instance: str
    reason: DecisionReason
    fallbacks: tuple[str, ...] = ()
    alternate: str | None = None
    weigh: Callable[[], Weighing] = field(compare=False, repr=False)
    """A function that returns what was compared. Its result is valid only until something changes, so it is called at
    once, and only for decisions that are recorded.
    """
    session: str | None = None
    """The session whose home becomes `instance`; needed if the policy also binds requests without a session. None = the
    request's own session.
    """
    room_tokens: int | None = None
    """KV tokens that must be free on `instance` for the session to move. If this is not None, the session moves only
    when the request is sent; if `instance` then lacks the room, the request goes back to the session's home, and
    nothing moves.
    """
    overloaded: tuple[str, ...] = ()
    """Instances that the policy found overloaded, so that their queues should be rebalanced."""
    decode: str | None = None
    """The instance where the request should decode, when `instance` only prefills; None = the scheduler selects."""
    transfer_from: str | None = None
    """The instance from which `instance` should fetch the KV blocks of the prompt's prefix instead of
    computing them.
    """
    ttft_seconds: float | None = None
    """The policy's own prediction of the TTFT on `instance`, if it differs from the view's, for example because of a
    transfer.
    """

    learn: Callable[[str, float], None] | None = field(default=None, compare=False, repr=False)
    """A function to call with the instance that computed the prompt and the time of the first token (Unix seconds). It
    is not called if the request was queued elsewhere than chosen, or if its first token cannot be seen.
    """

    @property
    def candidates(self) -> tuple[CandidateScore, ...]:
        """The chosen instance and the next best ones, with the compared values."""
        return self.weigh().candidates
