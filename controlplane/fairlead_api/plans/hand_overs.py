"""Forecasts how much of the sessions' cached tokens is kept if a plan makes the sessions' instances leave."""

from collections.abc import Iterable

from fairlead.hand_overs import Leaving, Means, expected
from fairlead.instances import ACCEPTING, Role
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_client.resources.plans import HandOverForecast

FEW = 3
"""Minimum number of transfers of KV blocks from which their duration is estimated."""


def forecast(pool: PoolUse, leaving: Iterable[InstanceUse], *, replaced: bool = True) -> HandOverForecast | None:
    """Return a forecast for the sessions of these instances, which leave one after the other: the share of their caches
    that the sessions keep. None if none of the instances computes prompts. With `replaced`, each instance gets a
    successor, so that the capacity for prompts stays the same.
    """
    computing = [use for use in pool.instances if use.role is not Role.DECODE and use.state in ACCEPTING]
    gone = [use for use in leaving if use in computing]
    if not gone:
        return None
    tokens, everything = sum(use.recent_tokens for use in gone), sum(use.recent_tokens for use in computing)
    staying = len(computing) - (0 if replaced else len(gone))
    unknown = _unknown(pool, everything, staying)
    if unknown is not None:
        return HandOverForecast(unknown=unknown)
    assert pool.prefill_tokens_per_second is not None
    found = expected(
        Leaving(instances=len(gone), sessions=sum(use.recent_sessions for use in gone), tokens=tokens, all_tokens=everything),
        Means(
            tokens_per_second=staying * pool.prefill_tokens_per_second,
            budget=pool.facts.routing.hand_over_budget,
            routers=pool.routers,
            transfers=None if pool.facts.engine.handing_on is None else pool.transfers,
        ),
    )
    return HandOverForecast(hits_kept=found.hits_kept, seconds_longer=found.seconds_longer, more_work=found.more_work)


def least_kept(forecasts: Iterable[HandOverForecast | None]) -> HandOverForecast | None:
    """Return the worst of several forecasts about the same sessions, one for each part of a change: a forecast with an
    unknown result, if there is one, otherwise the forecast in which sessions keep the smallest share of their caches.
    None without forecasts.
    """
    found = [one for one in forecasts if one is not None]
    return min(found, key=lambda one: -1.0 if one.hits_kept is None else one.hits_kept, default=None)


def _unknown(pool: PoolUse, tokens: int, staying: int) -> str | None:
    if tokens == 0:
        return "no session had a turn in the last five minutes"
    if staying == 0:
        return "no instance is left to take the sessions"
    if pool.prefill_tokens_per_second is None:
        return "how fast its instances compute prompts is not measured yet"
    moves = pool.facts.engine.handing_on is not None and pool.facts.routing.hand_over_budget > 0
    if moves and pool.transfers.tried < FEW:
        return "hardly any session has taken its KV cache along yet, so it is not known how long that takes"
    return None
