"""A made-up tree of sessions: a root with two sub-agents and a fork, and their think times. One of the sessions
moved.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.session_trees import Evidence, Link, TaskVerdict
from fairlead_client.resources.trees import SessionTree, TaskFigures, TaskList, ThinkTime, ThinkTimes, TreeSession, TreeTurn
from fairlead_testing.fakes.public_data.loads import HOSTILE, INSTANCES

TASK = "migrate-the-billing-service-to-the-new-ledger-2026-11"
MEMBERS = (
    (None, None, None, 0),
    ("research-agent-of-the-billing-service-0a7c1", Link.SUB_AGENT, Evidence.SENT, 1),
    ("review-agent-of-the-billing-service-0a7c2", Link.SUB_AGENT, Evidence.SENT, 2),
    ("conversation-0001-fork", Link.FORK, Evidence.PREFIX, 1),
)
"""Name, link, evidence and depth of each session. The name is None for the root, which the caller names."""
TURNS = 12
"""The number of turns of each session."""


def tree(pool: str, root: str, now: datetime) -> SessionTree:
    """Return a tree of four sessions with `TURNS` turns each, the newest a minute ago."""
    turns = [_turn(pool, name or root, place, number, now) for place, (name, *_) in enumerate(MEMBERS) for number in range(TURNS)]
    sessions = [
        TreeSession(
            session=name or root,
            parent=None if link is None else root,
            link=link,
            evidence=evidence,
            depth=depth,
            instance=INSTANCES[pool][place],
            compactions=int(place == 0),
            **_sums([one for one in turns if one.session == (name or root)]),
        )
        for place, (name, link, evidence, depth) in enumerate(MEMBERS)
    ]
    tasks = [_task(pool, root, turns)]
    in_order = sorted(turns, key=lambda one: one.at)
    return SessionTree(pool=pool, root=root, sessions=sessions, sessions_in_all=len(sessions), tasks=tasks, turns=in_order, complete=True)


def tasks(pools: Sequence[str], now: datetime) -> TaskList:
    """Return tasks of each pool: a task that its requests named, and a task that is a whole tree."""
    found = [one for pool in pools for one in tree(pool, "conversation-0001", now).tasks]
    return TaskList(tasks=[*found, *(_task(pool, HOSTILE, tree(pool, HOSTILE, now).turns, named=False) for pool in pools)])


def think_times(pool: str, now: datetime) -> ThinkTimes:
    """Return think times of a key with a tool, of requests with neither key nor tool, and of one and of many other
    tools.
    """
    rows = (("k-0", "run_the_tests_of_the_billing_service", 0), ("", "", 0), ("k-0", "", 1), ("", "", 120_000))
    times = [
        ThinkTime(
            tenant=tenant,
            tool=tool,
            turns=123_456 // (place + 1),
            p50_seconds=0.4 + place,
            p90_seconds=4.0 + place,
            p99_seconds=400.0,
            first_at=now - timedelta(hours=4),
            last_at=now - timedelta(minutes=place),
            other_tools=others,
        )
        for place, (tenant, tool, others) in enumerate(rows)
    ]
    return ThinkTimes(pool=pool, since=now - timedelta(hours=4), times=times)


def _task(pool: str, root: str, turns: Sequence[TreeTurn], named: bool = True) -> TaskFigures:
    sums = _sums(turns)
    wall = (sums["ended_at"] - sums["first_at"]).total_seconds()
    return TaskFigures(
        pool=pool,
        task=TASK if named else root,
        named=named,
        root=root,
        sessions=len(MEMBERS),
        wall_seconds=wall,
        priority_class="batch" if named else "default",
        verdict=TaskVerdict.BROKEN_OFF if named else None,
        **sums,
    )


def _turn(pool: str, session: str, place: int, number: int, now: datetime) -> TreeTurn:
    at = now - timedelta(minutes=2 * (TURNS - number), seconds=13 * place)
    refused, moved = place == 1 and number == 4, place == 2 and number == 6
    instances = INSTANCES[pool]
    return TreeTurn(
        session=session,
        at=at,
        ended_at=at + timedelta(seconds=1 if refused else 55),
        task=TASK,
        tool="run_the_tests_of_the_billing_service" if number % 3 else None,
        gap_seconds=None if number == 0 else 65.0,
        compacted=Evidence.PREFIX if place == 0 and number == 8 else None,
        outcome=RequestOutcome.REFUSED if refused else RequestOutcome.SERVED,
        rejection=RejectionReason.PREDICTED_TTFT if refused else None,
        instance=None if refused else instances[place + (place == 2 and number < 6)],
        rank=None,
        queued_seconds=None if refused else 0.2,
        ttft_seconds=None if refused else 1.4,
        prompt_tokens=12_000 + 9_000 * number,
        cached_tokens=None if refused else 11_000 + 8_900 * number,
        output_tokens=None if refused else 420,
        decision=None,
        moved_from=instances[place + 1] if moved else None,
    )


def _sums(turns: Sequence[TreeTurn]) -> dict[str, Any]:
    sent = [one for one in turns if one.instance is not None]
    return {
        "turns": len(turns),
        "refusals": len(turns) - len(sent),
        "failures": 0,
        "prompt_tokens": sum(one.prompt_tokens for one in sent),
        "cached_tokens": sum(one.cached_tokens or 0 for one in sent),
        "output_tokens": sum(one.output_tokens or 0 for one in sent),
        "queued_seconds": sum(one.queued_seconds or 0.0 for one in sent),
        "model_seconds": sum((one.ended_at - one.at).total_seconds() for one in sent),
        "first_at": min(one.at for one in turns),
        "ended_at": max(one.ended_at for one in turns),
        "moves": sum(one.moved_from is not None for one in turns),
        "tool_seconds": sum(one.gap_seconds or 0.0 for one in turns),
    }
