"""Rows that are judged together get the same verdict as when each is judged alone."""

import random
from dataclasses import replace
from typing import Any

import pytest

from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.loads import LoadSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.tables import PoolKey
from fairlead_api.reports.plausibility import MAX_COUNT, MAX_ITEMS, MAX_NAME, fault, faultless

POOL = PoolKey(namespace="default", name="chat")
SCORE = CandidateScore(
    instance="a", hit_tokens=1, miss_tokens=2, pending_tokens=3, predicted_ttft_seconds=0.4, total=1.0, terms={"load": 0.5}
)
LOAD = LoadSample(
    pool=POOL, instance="a", second=1_790_000_000, running=1, waiting=0, pending_prefill_tokens=0, in_flight=1, ttft_seconds=(0.1,)
)
DECISION = DecisionRecord(
    id="d",
    pool=POOL,
    request="r",
    session=None,
    at=1_790_000_000.0,
    policy="fairlead",
    table_version=1,
    chosen="a",
    runner_up=None,
    reason=DecisionReason.SESSION_BOUND,
    prompt_tokens=1,
    queued_seconds=0.0,
    ttft_seconds=None,
    weighing=Weighing(rule="slo", candidates=(SCORE,), considered=1),
)
REJECTION = RejectionRecord(
    pool=POOL,
    second=1_790_000_000,
    reason=RejectionReason.QUEUE_FULL,
    count=1,
    status=503,
    sample_request="r",
    sample_prompt_tokens=1,
    retry_after_seconds=1.0,
)
LONG = "x" * (MAX_NAME + 1)
NAN = float("nan")
BAD: list[tuple[Any, dict[str, Any]]] = [
    *((LOAD, {"instance": name}) for name in (LONG, "a\0b", "é" * MAX_NAME)),
    *((LOAD, {"running": count}) for count in (-1, MAX_COUNT + 1)),
    *((LOAD, {"tpot_total": count}) for count in (-1, MAX_COUNT + 1)),
    *((LOAD, {"kv_usage": number}) for number in (NAN, float("inf"), -1e13)),
    *((LOAD, {"ttft_seconds": times}) for times in ((0.1, NAN), (1e13,), (0.1,) * (MAX_ITEMS + 1))),
    (LOAD, {"pool": PoolKey(namespace="default", name=LONG)}),
    (DECISION, {"session": "a\0b"}),
    (DECISION, {"weighing": replace(DECISION.weighing, candidates=(SCORE, replace(SCORE, hit_tokens=-1)))}),
    (DECISION, {"weighing": replace(DECISION.weighing, candidates=(replace(SCORE, terms={LONG: 1.0}),))}),
    (DECISION, {"weighing": replace(DECISION.weighing, candidates=(replace(SCORE, terms={"load": NAN}),))}),
    *((REJECTION, {"status": status}) for status in (0, 99, 600)),
]


@pytest.mark.parametrize(("row", "changes"), BAD)
def test_one_bad_row_among_many_is_seen_wherever_it_is(row: Any, changes: dict[str, Any]) -> None:
    bad = replace(row, **changes)
    assert fault(row) is None
    assert fault(bad) is not None
    assert faultless([row] * 20)
    for place in (0, 7, 19):
        rows = [row] * 20
        rows[place] = bad
        assert not faultless(rows)


def test_rows_within_all_bounds_are_faultless_together() -> None:
    draw = random.Random(7)
    edges = [
        replace(LOAD, instance="x" * MAX_NAME, running=MAX_COUNT, kv_usage=None, ttft_seconds=()),
        replace(LOAD, kv_usage=1e12, ttft_seconds=(-1e12,) * MAX_ITEMS, tpot_within_slo=0),
        *(replace(LOAD, running=draw.randrange(MAX_COUNT), kv_usage=draw.random()) for _ in range(50)),
    ]
    assert not any(map(fault, edges))
    assert faultless(edges)
    assert faultless([])
