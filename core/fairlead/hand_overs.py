"""What becomes of the caches of instances that leave: what their sessions are expected to keep of them, by what was
measured before, and what they kept.

A session keeps its hits if another instance has its prompt before its next turn comes: it fetched the blocks while its
old instance was kept for that, or has computed the prompt within the budget. Turns are taken to come evenly over the
next `SOON_SECONDS`, and each session's tokens to be as likely to be asked for as any other's.
"""

from fairlead.routing.knowledge.next_turns import SOON_SECONDS
from fairlead.values import value

HOLD_SECONDS = 10.0
"""An instance that drains is kept for this long at most, so that its sessions can fetch their blocks there."""
FETCHES_AT_ONCE = 8
"""Sessions of a pool whose blocks one router lets fetch at a time: each takes a place in two engines, mostly waiting
for its turn.
"""


@value
class Transfers:
    """The transfers of KV blocks in a pool's records: how many were tried, how many came, and the seconds of each."""

    tried: int
    came: int
    mean_seconds: float


@value
class Leaving:
    """The instances that leave, one after another: how many, their sessions that had a turn of late and these sessions'
    tokens, of `all_tokens` of the pool.
    """

    instances: int
    sessions: int
    tokens: int
    all_tokens: int


@value
class Means:
    """What can be done for them. `transfers` None: the pool's engines hand on no blocks. `tokens_per_second` are all
    prompt tokens that the instances that stay compute, of which `budget` (0-1) goes into it.
    """

    tokens_per_second: float
    budget: float
    routers: int
    transfers: Transfers | None


@value
class HandOver:
    """The share (0-1) of the pool's hits that is kept, the seconds that it takes longer for that, and the work in parts
    of what the pool computes in `SOON_SECONDS`.
    """

    hits_kept: float
    seconds_longer: float
    more_work: float


def expected(leaving: Leaving, means: Means) -> HandOver:
    """What sessions keep when instances leave."""
    moved, seconds = (0.0, 0.0) if means.transfers is None else _moved(leaving, means.routers, means.transfers)
    left = leaving.tokens * (1 - moved)
    speed = means.budget * means.tokens_per_second
    in_time = _in_time(left / speed) if speed > 0 else float(left == 0)
    lost = left * (1 - in_time) / leaving.all_tokens if leaving.all_tokens else 0.0
    work = min(left, speed * SOON_SECONDS) / (means.tokens_per_second * SOON_SECONDS) if means.tokens_per_second > 0 else 0.0
    return HandOver(hits_kept=1 - lost, seconds_longer=seconds * leaving.instances, more_work=work)


def _moved(leaving: Leaving, routers: int, transfers: Transfers) -> tuple[float, float]:
    """The share of the tokens that is fetched in time, and the seconds that each instance is kept for it."""
    if not (leaving.sessions and transfers.came):
        return 0.0, 0.0
    each = leaving.sessions / leaving.instances
    seconds = each * transfers.mean_seconds / (FETCHES_AT_ONCE * max(1, routers))
    reached = 1.0 if seconds <= HOLD_SECONDS else HOLD_SECONDS / seconds
    return reached * transfers.came / transfers.tried, min(HOLD_SECONDS, seconds)


def _in_time(seconds: float) -> float:
    """The share of turns, even over SOON_SECONDS, that come after their prompt was computed, if all take `seconds`."""
    return 1 - seconds / (2 * SOON_SECONDS) if seconds <= SOON_SECONDS else SOON_SECONDS / (2 * seconds)
