"""Migrations and re-routes between the instances of the made-up pools."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.sessions import SessionSummary
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE, INSTANCES, TRIGGERS


def migrations(now: datetime, sessions: Sequence[SessionSummary], extra: Sequence[Migration]) -> list[Migration]:
    found, of = list(extra), {pool: [one for one in sessions if one.pool == pool] for pool in (CHAT, CODE)}
    for number in range(130):
        facts = _move(now, number)
        mine = of[facts["pool"]]
        session = HOSTILE if number == 4 else mine[number % len(mine)].session
        move = Migration(id=f"m-{number:04d}", session=session, **facts)
        found.append(replace(move, explanation=explain_move(move, f"Session {session}")))
    return sorted(found, key=lambda one: one.at, reverse=True)


def reroutes(now: datetime) -> list[ReRoute]:
    moves = [ReRoute(id=f"q-{number:04d}", session=None, **_move(now, number)) for number in range(40)]
    return [replace(move, explanation=explain_move(move, f"Request {move.request}")) for move in moves]


def _move(now: datetime, number: int) -> dict[str, Any]:
    """Return the fields that migrations and re-routes have in common.

    For every ninth move, staying was predicted to be faster. The twelfth has no prediction for staying.
    """
    random = Random(number)
    pool = CHAT if number % 5 else CODE
    source, target = random.sample(INSTANCES[pool], 2)
    stay, move = 3 + random.random() * 4, 0.4 + random.random() * 2
    if number % 9 == 5:
        stay, move = move, stay
    actual = None if number == 0 else min(stay, move) * (0.8 + random.random() * (2.8 if number % 6 == 0 else 0.5))
    known = number != 11
    benefit = stay - move
    paid_off = None if actual is None or not known else False if actual >= stay else True if benefit > 0 else None
    return {
        "pool": pool,
        "request": f"req-{number:05d}",
        "source": source,
        "target": target,
        "trigger": TRIGGERS[number % len(TRIGGERS)],
        "at": now - timedelta(seconds=12 + number * 26 + (number % 7) * 5),
        "router": f"router-{number % 2}",
        "predicted_source_ttft_seconds": stay if known else None,
        "predicted_target_ttft_seconds": move,
        "benefit_seconds": benefit if known else None,
        "actual_ttft_seconds": actual,
        "tokens_moved": 0,
        "tokens_recomputed": 2000 + int(random.random() * 30000),
        "outcome": MoveOutcome.UNDERWAY if actual is None else MoveOutcome.FAILED if number == 11 else MoveOutcome.COMPLETED,
        "paid_off": paid_off,
        "explanation": "",
    }
