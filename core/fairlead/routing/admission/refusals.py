"""Refusals, each with a named reason, an HTTP status, a sentence for the client, and a Retry-After."""

from math import ceil

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.tables import PoolKey, RoutingTable

LONGEST_RETRY_AFTER_SECONDS = 600.0

CLOSED_RETRY_AFTER_SECONDS = 60.0
"""The Retry-After of a pool without instances if it is not known when the pool will have some."""


def whole_seconds(seconds: float) -> float:
    """A Retry-After in whole seconds, rounded up, from 1 to 600; the argument may be infinite."""
    return float(ceil(min(max(1.0, seconds), LONGEST_RETRY_AFTER_SECONDS)))


def refuse(
    request: RoutingRequest,
    reason: RejectionReason,
    *,
    retry_after_seconds: float,
    message: str,
    predicted_ttft_seconds: float | None = None,
) -> Refusal:
    """A refusal with the status of its reason: 429 if the pool serves but has no room for this request now, 503 if no
    instance serves.
    """
    return Refusal(
        request=request,
        reason=reason,
        status=reason.facts.status,
        retry_after_seconds=whole_seconds(retry_after_seconds),
        message=message,
        predicted_ttft_seconds=predicted_ttft_seconds,
    )


def queue_full(request: RoutingRequest, pool: PoolKey, limit: int, drain_seconds: float, *, in_turn: bool = False) -> Refusal:
    """429: the queues of all instances that could take this request are full. If tenants take turns (`in_turn`), only
    those requests of other tenants that go before this request are counted.
    """
    message = f"{limit} requests already wait for each instance of pool {pool} that could take this one" + " and go before it" * in_turn
    return refuse(request, RejectionReason.QUEUE_FULL, retry_after_seconds=drain_seconds, message=message)


def waited_too_long(request: RoutingRequest, pool: PoolKey, waited_seconds: float, drain_seconds: float) -> Refusal:
    """429: the queue-time limit passed before an instance had room."""
    message = f"waited {waited_seconds:.1f} s for an instance of pool {pool} to have room"
    return refuse(request, RejectionReason.QUEUE_TIMEOUT, retry_after_seconds=drain_seconds, message=message)


def unplaceable(request: RoutingRequest, table: RoutingTable) -> Refusal:
    """500: the pool's policy failed on this request, so no instance was chosen for it; see the router's log."""
    message = f"the policy {table.routing.policy} of pool {table.pool} failed on this request; the router's log says how"
    return refuse(request, RejectionReason.POLICY_FAILED, retry_after_seconds=1.0, message=message)


def too_late(request: RoutingRequest, table: RoutingTable, load: InstanceLoad, now: float) -> Refusal:
    """429: on the instance of `load`, other requests that can still be in time go first, so this one will be late."""
    waited, target = now - request.arrived_at, table.slo.ttft_seconds
    return refuse(
        request,
        RejectionReason.PREDICTED_TTFT,
        retry_after_seconds=load.pending_prefill_microseconds / 1e6,
        message=f"after {waited:.1f} s in the queue the first token can no longer come within {target:g} s in pool {table.pool}",
    )


def nobody_serves(request: RoutingRequest, pool: PoolKey, waited_seconds: float, retry_after_seconds: float) -> Refusal:
    """503: the pool had no instance to choose for a while."""
    message = f"no instance of pool {pool} accepts requests (waited {waited_seconds:.1f} s for one)"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=retry_after_seconds, message=message)


def none_within(request: RoutingRequest, pool: PoolKey) -> Refusal:
    """503: no instance that may serve this request accepts requests."""
    message = f"none of the endpoints that the gateway allows for this request accepts requests of pool {pool}"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=1.0, message=message)


def not_held(request: RoutingRequest, table: RoutingTable, retry_after_seconds: float) -> Refusal:
    """503: the pool has no instance yet, and as many requests as allowed already wait for the first."""
    message = f"no instance of pool {table.pool} accepts requests, and as many as allowed already wait for one"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=retry_after_seconds, message=message)


def scaled_to_zero(request: RoutingRequest, table: RoutingTable, now: float) -> Refusal:
    """503: the pool is scaled to zero, and no request changes that."""
    message, retry_after = why_closed(table, now)
    reason = RejectionReason.SCALED_TO_ZERO
    return Refusal(request=request, reason=reason, status=reason.facts.status, retry_after_seconds=retry_after, message=message)


def why_closed(table: RoutingTable, now: float) -> tuple[str, float]:
    """Return the sentence for a client of a pool that is scaled to zero, and the Retry-After, which may be hours."""
    message = f"pool {table.pool} is scaled to zero instances"
    if table.opens_at is None or table.opens_at <= now:
        return message, CLOSED_RETRY_AFTER_SECONDS
    opens = max(1, ceil(table.opens_at - now))
    return f"{message}; a schedule starts some in {opens} s", float(opens)


def upstream_failed(request: RoutingRequest, pool: PoolKey, tried: tuple[str, ...], *, alike: bool = False) -> Refusal:
    """502: every instance that could be tried failed before its first byte. `alike` says that the instances fail on
    this request but serve other requests.
    """
    if alike:
        message = (
            f"the request failed in the same way on {' and '.join(tried)} of pool {pool}, which serve other "
            "requests; it is not retried elsewhere"
        )
    else:
        message = f"no instance of pool {pool} answered; tried {', '.join(tried) or 'none'}"
    return refuse(request, RejectionReason.UPSTREAM_FAILED, retry_after_seconds=1.0, message=message)


def shutting_down(request: RoutingRequest, pool: PoolKey) -> Refusal:
    """503: this router is stopping; another router or its successor can serve the request at once."""
    message = f"this router of pool {pool} is shutting down; send the request again"
    return refuse(request, RejectionReason.SHUTTING_DOWN, retry_after_seconds=1.0, message=message)
