"""Predicts which share of their cached tokens sessions keep when their instances are removed. The prediction uses
earlier measurements.

A session keeps its hits if another instance has its prompt before its next turn arrives. That instance has either
fetched the KV blocks, for which the session's old instance is kept for a while, or computed the prompt within the
budget. Turns are assumed to arrive evenly over the next `SOON_SECONDS`, and all tokens are assumed to be equally likely
to be requested.
"""

from fairlead.routing.knowledge.next_turns import SOON_SECONDS
from fairlead.values import value

HOLD_SECONDS = 10.0
"""Maximum number of seconds for which a draining instance is kept so that its sessions can fetch their blocks from
it.
"""
FETCHES_AT_ONCE = 16
"""Maximum number of sessions of a pool whose blocks one router lets other instances fetch at the same time. Each fetch
occupies a request in two engines, mostly while it waits in a queue.
"""


@value
class Transfers:
    """The transfers of KV blocks in a pool's records: the number tried, the number that succeeded, and the seconds of
    each.
    """

    tried: int
    came: int
    mean_seconds: float


@value
class Leaving:
    """The instances that are about to be removed, one after another. The fields are the number of instances, the number
    of their sessions that had a turn recently, and the number of tokens of these sessions, out of `all_tokens` of the
    pool.
    """

    instances: int
    sessions: int
    tokens: int
    all_tokens: int


@value
class Means:
    """The resources for keeping sessions' caches. `transfers` is None if the pool's engines cannot transfer KV blocks.
    `tokens_per_second` is the rate at which the remaining instances compute prompt tokens; the share `budget` (0-1) of
    this rate may be used for the moved sessions.
    """

    tokens_per_second: float
    budget: float
    routers: int
    transfers: Transfers | None


@value
class HandOver:
    """The share (0-1) of the pool's hits that is kept, the extra seconds for keeping it, and the extra work as a share
    of the pool's computation in `SOON_SECONDS`.
    """

    hits_kept: float
    seconds_longer: float
    more_work: float


def expected(leaving: Leaving, means: Means) -> HandOver:
    """Return the expected share of the caches that sessions keep when the instances are removed, with its cost."""
    moved, seconds = (0.0, 0.0) if means.transfers is None else _moved(leaving, means.routers, means.transfers)
    left = leaving.tokens * (1 - moved)
    speed = means.budget * means.tokens_per_second
    in_time = _in_time(left / speed) if speed > 0 else float(left == 0)
    lost = left * (1 - in_time) / leaving.all_tokens if leaving.all_tokens else 0.0
    work = min(left, speed * SOON_SECONDS) / (means.tokens_per_second * SOON_SECONDS) if means.tokens_per_second > 0 else 0.0
    return HandOver(hits_kept=1 - lost, seconds_longer=seconds * leaving.instances, more_work=work)


def _moved(leaving: Leaving, routers: int, transfers: Transfers) -> tuple[float, float]:
    """Return the share of the tokens that is fetched in time, and the seconds for which each removed instance is kept
    for these fetches.
    """
    if not (leaving.sessions and transfers.came):
        return 0.0, 0.0
    each = leaving.sessions / leaving.instances
    seconds = each * transfers.mean_seconds / (FETCHES_AT_ONCE * max(1, routers))
    reached = 1.0 if seconds <= HOLD_SECONDS else HOLD_SECONDS / seconds
    return reached * transfers.came / transfers.tried, min(HOLD_SECONDS, seconds)


def _in_time(seconds: float) -> float:
    """Return the share of turns, spread evenly over SOON_SECONDS, that arrive after their prompt was computed, if
    computing all prompts takes `seconds`.
    """
    return 1 - seconds / (2 * SOON_SECONDS) if seconds <= SOON_SECONDS else SOON_SECONDS / (2 * seconds)
