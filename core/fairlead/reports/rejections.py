"""Refused requests, counted by cause and second, and for each cause the texts that routers, advice and pages show."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from fairlead.instances import Role
from fairlead.tables import DEFAULT_CLASS, PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFacts:
    """The facts about one reason for refusals: the router's response to the client, and the texts of pages and of
    advice.

    `short` is the role that has too few instances: prefill, decode, or None for neither. If `by_estimate` is True, the
    request was refused because the router estimated that there is too little time or too little room. If it is False,
    no instance serves the model, or no instance is allowed to serve the request.
    """

    status: int
    title: str
    finding: str
    """Completes the sentence "The pool refuses 2 requests/s: …"; `{ttft}` and `{tpot}` stand for the pool's targets."""
    suggestion: str
    """The remedy for the refusals, in one or two sentences."""
    short: Role | None = None
    by_estimate: bool = False


class RejectionReason(StrEnum):
    """The reason why a request was refused; the values are used as metric labels, in a header and in the audit log."""

    PREDICTED_TTFT = "rejected-predicted-ttft"
    DECODE_OVERLOADED = "rejected-decode-overloaded"
    AFTER_PREFILL = "rejected-after-prefill"
    """Like DECODE_OVERLOADED, but detected only after the prompt had been computed."""
    QUEUE_FULL = "rejected-queue-full"
    QUEUE_TIMEOUT = "rejected-ttl-expired"
    NO_INSTANCES = "rejected-no-endpoints"
    POLICY_FAILED = "rejected-policy-failed"
    SCALED_TO_ZERO = "rejected-scaled-to-zero"
    UPSTREAM_FAILED = "rejected-upstream-failed"
    SHUTTING_DOWN = "rejected-shutting-down"

    @property
    def facts(self) -> ReasonFacts:
        """The texts and properties of this reason."""
        return _FACTS[self]


_FACTS: Mapping[RejectionReason, ReasonFacts] = MappingProxyType(
    {
        RejectionReason.PREDICTED_TTFT: ReasonFacts(
            status=429,
            title="First token predicted too late",
            finding="every instance was predicted to miss the TTFT target of {ttft} when the requests arrived",
            suggestion="Every instance would miss the TTFT target. Add instances; prompts that are too long for any instance need a longer slo.ttft.",
            short=Role.PREFILL,
            by_estimate=True,
        ),
        RejectionReason.DECODE_OVERLOADED: ReasonFacts(
            status=429,
            title="Decode predicted too slow",
            finding="decoding was predicted to miss the TPOT target of {tpot} when the requests arrived",
            suggestion=(
                "Decoding would miss the TPOT target. Add instances (that decode), raise slo.tpot, or raise earlyRejection.headroom."
            ),
            short=Role.DECODE,
            by_estimate=True,
        ),
        RejectionReason.AFTER_PREFILL: ReasonFacts(
            status=429,
            title="Decode too slow, after a prefill in vain",
            finding=(
                "decoding would miss the TPOT target of {tpot}, which was found only after their prompts were computed; "
                "mode Load refuses such requests at arrival"
            ),
            suggestion="Prompts were computed in vain. Add decode instances, or set earlyRejection.mode to Load, which refuses at arrival.",
            short=Role.DECODE,
        ),
        RejectionReason.QUEUE_FULL: ReasonFacts(
            status=429,
            title="Queue full",
            finding="routers' queues are full",
            suggestion="Router queues are full. Add instances, or raise routing.prefillsInFlight.",
            short=Role.PREFILL,
            by_estimate=True,
        ),
        RejectionReason.QUEUE_TIMEOUT: ReasonFacts(
            status=429,
            title="Waited too long in the queue",
            finding="they waited in routers' queues until they expired",
            suggestion="Requests waited too long in the router's queue. Add instances, or turn on earlyRejection to refuse them at once.",
            short=Role.PREFILL,
            by_estimate=True,
        ),
        RejectionReason.NO_INSTANCES: ReasonFacts(
            status=503,
            title="No instance serving",
            finding="none of its instances accepts requests",
            suggestion="No instance accepts requests. Look at the pool's instances and conditions.",
        ),
        RejectionReason.POLICY_FAILED: ReasonFacts(
            status=500,
            title="The routing policy failed",
            finding="the pool's routing policy failed on the requests; the routers' logs say why",
            suggestion="The routing policy failed on these requests. The routers' logs say why; choose another policy in the meantime.",
        ),
        RejectionReason.SCALED_TO_ZERO: ReasonFacts(
            status=503,
            title="Scaled to zero",
            finding="no instance is desired",
            suggestion="No instance is desired. Raise replicas, or look at the pool's schedules.",
        ),
        RejectionReason.UPSTREAM_FAILED: ReasonFacts(
            status=502,
            title="Every instance tried failed",
            finding="engines failed before the first byte on every try",
            suggestion="Engines failed before the first byte on every try. Look at the engines' logs and restarts.",
        ),
        RejectionReason.SHUTTING_DOWN: ReasonFacts(
            status=503,
            title="Router shutting down",
            finding="a router was shutting down; clients should try again",
            suggestion="A router was shutting down. Clients should retry; nothing to change.",
        ),
    }
)

FOR_PREFILL = frozenset(reason for reason in RejectionReason if reason.facts.short is Role.PREFILL)
FOR_DECODE = frozenset(reason for reason in RejectionReason if reason.facts.short is Role.DECODE)
"""Refusal reasons whose cause is too few decode instances. FOR_PREFILL has the reasons whose cause is too few prefill
instances. All other reasons are in neither set.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRecord:
    """Refusals of one cause and priority class in one second, with one sample request.

    `sample_request` is the router's id of that request, not the id that its client may have given. It equals `request`
    of the request's decision, which has both ids. The router's log and the search use the router's id.
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
