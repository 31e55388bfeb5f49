"""Estimates the effect of scaling a pool from present sessions and traffic. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.instances import ACCEPTING
from fairlead_client.resources.plans import PlanEffect

HEAVY_SHARE = 0.10
"""A change is heavy when it moves more than this share of sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUse:
    """An instance that is not gone, with the sessions and cached tokens that would be lost with it."""

    id: str
    state: str
    bound_sessions: int
    cache_tokens: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleBasis:
    """The present use of a pool.

    `miss_tokens_per_second` prompt tokens that need prefill arrive over the whole pool, in `requests_per_second`
    requests; None = no traffic seen.
    """

    instances: Sequence[InstanceUse]
    attainment: float | None
    requests_per_second: float | None
    miss_tokens_per_second: float | None
    prefill_tokens_per_second: float
    ttft_slo_seconds: float


def scale_effect(basis: ScaleBasis, before: int, after: int) -> PlanEffect:
    """The effect of scaling from `before` to `after` instances.

    The instances removed are those that the operator would choose: first those that do not serve yet, then those with
    the least bound sessions × cached tokens.
    """
    present = [use for use in basis.instances if use.state != "Draining"]
    ranked = sorted(present, key=_worth)
    victims = ranked[: max(0, min(len(ranked), before - after))]
    total = sum(use.bound_sessions for use in basis.instances)
    affected = sum(use.bound_sessions for use in victims)
    homeless = after == 0 or len(victims) == len(present)
    heavy = (after == 0 and before > 0) or (affected > HEAVY_SHARE * total and affected > 0)
    predicted = _attainment(basis, after)
    return PlanEffect(
        instances_added=max(0, after - before),
        instances_removed=max(0, before - after),
        victims=[use.id for use in victims],
        sessions_moved=0 if homeless else affected,
        sessions_lost=affected if homeless else 0,
        cache_tokens_lost=sum(use.cache_tokens for use in victims),
        predicted_attainment=predicted,
        prediction_basis=None if predicted is None else _said(basis),
        warnings=_warnings(basis, before, after, affected, total, predicted),
        heavy=heavy,
    )


def _said(basis: ScaleBasis) -> str:
    """The numbers behind a prediction, in words."""
    return (
        f"from the last 5 minutes: {basis.requests_per_second:.1f} requests/s with {basis.miss_tokens_per_second:,.0f} prompt tokens/s not "
        f"cached, {basis.prefill_tokens_per_second:,.0f} tokens/s of prefill per instance; waiting for prefill only, traffic as it is"
    )


def _worth(use: InstanceUse) -> tuple[bool, int, int, str]:
    return use.state in {state.value for state in ACCEPTING}, use.bound_sessions * use.cache_tokens, use.in_flight, use.id


def _attainment(basis: ScaleBasis, instances: int) -> float | None:
    """Share of requests whose wait for prefill stays within the TTFT target; None without traffic.

    Each instance is modelled as a queue with constant service time (M/D/1, tail exp(-2(1-u)/u x wait/service)).
    """
    if not basis.requests_per_second or basis.miss_tokens_per_second is None:
        return None
    if instances == 0:
        return 0.0
    busy = basis.miss_tokens_per_second / (instances * basis.prefill_tokens_per_second)
    if busy >= 1:
        return 0.0
    service = basis.miss_tokens_per_second / basis.requests_per_second / basis.prefill_tokens_per_second
    room = basis.ttft_slo_seconds - service
    if busy == 0 or service == 0:
        return 1.0
    return 0.0 if room <= 0 else 1 - busy * math.exp(-2 * (1 - busy) / busy * room / service)


def _warnings(basis: ScaleBasis, before: int, after: int, affected: int, total: int, predicted: float | None) -> list[str]:
    found = []
    if after == 0 and before > 0:
        found.append("Every request will be refused until the pool is scaled up again.")
        if affected:
            found.append(f"{affected} of {total} sessions are lost with their cache: no instance is left to take them.")
    elif predicted == 0.0:
        found.append("Prompt tokens arrive faster than the remaining instances can prefill them; the TTFT target would be missed.")
    elif predicted is not None and basis.attainment is not None and predicted < basis.attainment - 0.05:
        found.append(f"TTFT attainment is expected to fall from {basis.attainment:.0%} to about {predicted:.0%}.")
    if affected and after > 0:
        found.append(f"{affected} of {total} sessions move to other instances and lose their cache there.")
    waiting = sum(use.state in {"Pending", "Starting"} for use in basis.instances)
    if waiting and after > before:
        found.append(f"{waiting} instances are not ready yet.")
    return found
