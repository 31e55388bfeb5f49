"""Refusals: each has a named reason, an HTTP status, a sentence for the client and a Retry-After."""

from dataclasses import replace
from math import ceil

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.tables import PoolKey, RoutingTable

LONGEST_RETRY_AFTER_SECONDS = 600.0

CLOSED_RETRY_AFTER_SECONDS = 60.0
"""The Retry-After, in seconds, of a pool without instances, if it is unknown when the pool will have an instance."""


def whole_seconds(seconds: float) -> float:
    """Return a Retry-After as whole seconds: the argument rounded up and limited to 1 to 600. The argument may be
    infinite.
    """
    return float(ceil(min(max(1.0, seconds), LONGEST_RETRY_AFTER_SECONDS)))


def refuse(
    request: RoutingRequest,
    reason: RejectionReason,
    *,
    retry_after_seconds: float,
    message: str,
    predicted_ttft_seconds: float | None = None,
) -> Refusal:
    """Return a refusal with the HTTP status of its reason: 429 if the pool serves but has no room for this request now,
    503 if no instance serves.
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
    """Return a 429: `limit` requests already wait for each instance that could take this request. If tenants take turns
    (`in_turn`), the message adds that all of them would be sent before this request.
    """
    message = (
        f"{limit} requests already wait for each instance of pool {pool} that could take this one"
        + "; all of them would be sent before it" * in_turn
    )
    return refuse(request, RejectionReason.QUEUE_FULL, retry_after_seconds=drain_seconds, message=message)


def waited_too_long(request: RoutingRequest, pool: PoolKey, waited_seconds: float, drain_seconds: float) -> Refusal:
    """Return a 429: the request waited for the longest allowed time, and no instance had room."""
    message = f"waited {waited_seconds:.1f} s for an instance of pool {pool} to have room"
    return refuse(request, RejectionReason.QUEUE_TIMEOUT, retry_after_seconds=drain_seconds, message=message)


def unplaceable(request: RoutingRequest, table: RoutingTable) -> Refusal:
    """Return a 500: the pool's policy failed on this request, so no instance was chosen. The router's log has the
    error.
    """
    message = f"the policy {table.routing.policy} of pool {table.pool} failed on this request; the router's log has the error"
    return refuse(request, RejectionReason.POLICY_FAILED, retry_after_seconds=1.0, message=message)


def too_late(request: RoutingRequest, table: RoutingTable, load: InstanceLoad, now: float) -> Refusal:
    """Return a 429: on the instance of `load`, other requests that can still meet their TTFT SLO are sent first, so
    this request will miss its SLO.
    """
    waited, target = now - request.arrived_at, table.slo.ttft_seconds
    return refuse(
        request,
        RejectionReason.PREDICTED_TTFT,
        retry_after_seconds=load.pending_prefill_microseconds / 1e6,
        message=f"after {waited:.1f} s in the queue the first token can no longer come within {target:g} s in pool {table.pool}",
    )


def nobody_serves(request: RoutingRequest, pool: PoolKey, waited_seconds: float, retry_after_seconds: float) -> Refusal:
    """Return a 503: the pool has had no candidate for `waited_seconds`."""
    message = f"no instance of pool {pool} accepts requests (waited {waited_seconds:.1f} s for one)"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=retry_after_seconds, message=message)


def none_within(request: RoutingRequest, pool: PoolKey) -> Refusal:
    """Return a 503: none of the instances that may serve this request accepts requests now."""
    message = f"none of the endpoints that the gateway allows for this request accepts requests of pool {pool}"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=1.0, message=message)


def not_held(request: RoutingRequest, table: RoutingTable, retry_after_seconds: float) -> Refusal:
    """Return a 503: the pool has no instance yet, and the allowed number of requests already waits for its first
    instance.
    """
    message = f"no instance of pool {table.pool} accepts requests, and the maximum number of requests already waits for one"
    return refuse(request, RejectionReason.NO_INSTANCES, retry_after_seconds=retry_after_seconds, message=message)


def scaled_to_zero(request: RoutingRequest, table: RoutingTable, now: float) -> Refusal:
    """Return a 503: the pool is scaled to zero, and a request does not start it."""
    message, retry_after = why_closed(table, now)
    reason = RejectionReason.SCALED_TO_ZERO
    return Refusal(request=request, reason=reason, status=reason.facts.status, retry_after_seconds=retry_after, message=message)


def why_closed(table: RoutingTable, now: float) -> tuple[str, float]:
    """Return the sentence for a client of a pool that is scaled to zero, and the Retry-After in seconds, which may be
    hours.
    """
    message = f"pool {table.pool} is scaled to zero instances"
    if table.opens_at is None or table.opens_at <= now:
        return message, CLOSED_RETRY_AFTER_SECONDS
    opens = max(1, ceil(table.opens_at - now))
    return f"{message}; a schedule starts instances in {opens} s", float(opens)


def upstream_failed(
    request: RoutingRequest, pool: PoolKey, tried: tuple[str, ...], *, alike: bool = False, serve_others: bool = False
) -> Refusal:
    """Return a 502: every instance that was tried failed before the first byte of its response. `alike`: all of them
    failed in the same way. `serve_others`: all of them serve other requests, so the client should not send the request
    again.
    """
    if alike:
        others = ", which serve other requests" if serve_others else ""
        message = f"the request failed in the same way on {' and '.join(tried)} of pool {pool}{others}; it is not retried elsewhere"
    else:
        message = f"no instance of pool {pool} answered; tried {', '.join(tried) or 'none'}"
    return replace(refuse(request, RejectionReason.UPSTREAM_FAILED, retry_after_seconds=1.0, message=message), is_final=serve_others)


def shutting_down(request: RoutingRequest, pool: PoolKey) -> Refusal:
    """Return a 503: this router is stopping. Another router, or this router's successor, can serve the request at
    once.
    """
    message = f"this router of pool {pool} is shutting down; send the request again"
    return refuse(request, RejectionReason.SHUTTING_DOWN, retry_after_seconds=1.0, message=message)
