"""Refused requests, counted by cause and second."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.tables import DEFAULT_CLASS, PoolKey


class RejectionReason(StrEnum):
    """Why a request was refused; used as metric label, header and audit word."""

    PREDICTED_TTFT = "rejected-predicted-ttft"
    DECODE_OVERLOADED = "rejected-decode-overloaded"
    AFTER_PREFILL = "rejected-after-prefill"
    """As DECODE_OVERLOADED, but found when the prompt was computed already, in vain."""
    QUEUE_FULL = "rejected-queue-full"
    QUEUE_TIMEOUT = "rejected-ttl-expired"
    NO_INSTANCES = "rejected-no-endpoints"
    POLICY_FAILED = "rejected-policy-failed"
    SCALED_TO_ZERO = "rejected-scaled-to-zero"
    UPSTREAM_FAILED = "rejected-upstream-failed"
    SHUTTING_DOWN = "rejected-shutting-down"


FOR_PREFILL = frozenset({RejectionReason.PREDICTED_TTFT, RejectionReason.QUEUE_FULL, RejectionReason.QUEUE_TIMEOUT})
FOR_DECODE = frozenset({RejectionReason.DECODE_OVERLOADED, RejectionReason.AFTER_PREFILL})
"""Refusals because prefill instances are short, and because decode instances are. The other reasons belong to neither.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRecord:
    """Refusals of one cause and priority class in one second, with one sample request.

    `sample_request` is the router's id of that request, not the one its client may have given: it is the `request` of
    its decision, which has both, and by it the router's log and the search find it.
    """

    pool: PoolKey
    second: int
    reason: RejectionReason
    count: int
    status: int
    sample_request: str
    sample_prompt_tokens: int
    retry_after_seconds: float
    predicted_ttft_seconds: float | None = None
    priority_class: str = DEFAULT_CLASS
