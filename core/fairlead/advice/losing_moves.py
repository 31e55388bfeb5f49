"""LosingMoves: in total, sessions that moved got their first token later than was predicted for staying."""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy
from fairlead.advice.situations import PoolSituation
from fairlead.scaling.signals import ENOUGH_FINISHED
from fairlead.tables import MIGRATIONS_PAUSED


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield at most one finding. A finding has three conditions: the outcome of enough moves is known, these moves lost
    time in total even without the worst move, and migrations are not paused.
    """
    moves = pool.moves
    if pool.moves_paused or moves.known < ENOUGH_FINISHED or moves.net_seconds - min(0.0, moves.worst_seconds) >= 0:
        return
    lost = -moves.net_seconds
    yield Finding(
        pool=pool.pool,
        cause=Cause.LOSING_MOVES,
        level=Level.WARN,
        harm=Harm(amount=lost * 3600 / moves.seconds, unit=HarmUnit.WAITED_SECONDS),
        sentence=(
            f"{pool.pool}'s session moves cost users {wording.seconds(lost)} in the last {wording.seconds(moves.seconds)}: {moves.lost} of "
            f"{moves.known} moves with a known result were not faster than was predicted for staying."
        ),
        evidence=Evidence(kind=EvidenceKind.MIGRATIONS, seconds=moves.seconds),
        remedy=Remedy(kind="migrations", words="pausing migrations", fields={"migrations": MIGRATIONS_PAUSED}),
    )
