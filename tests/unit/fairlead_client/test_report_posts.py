"""Posts of reports, made from batches that were encoded long before."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from fairlead.reports.batches import Acknowledgement, Report, ReportBatch, RouterState
from fairlead.reports.engines import KnownCache, TroubledEngine
from fairlead.reports.loads import InstanceInFlight
from fairlead_client.report_posts import decode_batch, encode_batch, post_body
from fairlead_testing.builders.reports import a_change
from fairlead_testing.builders.routing_tables import CHAT

STATE = RouterState(
    sent_at=5.5,
    acknowledged=(Acknowledgement(pool=CHAT, version=3),),
    in_flight=(InstanceInFlight(pool=CHAT, instance="i0", in_flight=1, waiting=2),),
)


def test_a_report_is_a_batch_and_the_state_of_its_router() -> None:
    def described(kind: type[object]) -> set[tuple[str, object]]:
        return {(field.name, field.type) for field in fields(kind)}  # type: ignore[arg-type]  # all are dataclasses

    assert described(Report) == described(ReportBatch) | described(RouterState)


def test_the_first_batch_carries_the_state_and_its_neighbours_only_the_time() -> None:
    batches = [ReportBatch(id=name, router="router-0", bindings=(a_change(name),)) for name in "ab"]
    assert [decode_batch(encode_batch(batch)) for batch in batches] == batches
    first, second = msgspec.json.decode(post_body([encode_batch(batch) for batch in batches], STATE), type=list[Report])
    assert (first.sent_at, first.acknowledged, first.in_flight) == (STATE.sent_at, STATE.acknowledged, STATE.in_flight)
    assert (second.sent_at, second.acknowledged, second.in_flight) == (STATE.sent_at, (), ())
    assert [report.bindings for report in (first, second)] == [batch.bindings for batch in batches]


def test_a_batch_that_a_router_of_before_left_on_disk_is_sent() -> None:
    left = b'{"id":"old","router":"router-0","bindings":[]}'
    assert decode_batch(left) == ReportBatch(id="old", router="router-0")
    assert msgspec.json.decode(post_body([left], RouterState(sent_at=1.0)), type=list[Report])[0].id == "old"


@pytest.mark.parametrize(
    "row",
    [
        {"known_caches": (KnownCache(pool=CHAT, instance="i0", state="current", batches_lost=2**70),)},
        {"known_caches": (KnownCache(pool=CHAT, instance="i0", state="current", blocks=-(2**70)),)},
        {"troubled_engines": (TroubledEngine(pool=CHAT, instance="i0", trouble="x", words="half of a pair \ud800"),)},
    ],
)
def test_a_row_that_json_cannot_carry_is_left_out_and_the_report_is_sent(row: dict[str, Any]) -> None:
    well = {name: rows + tuple(replace(one, instance="i1", **_WELL[name]) for one in rows) for name, rows in row.items()}
    body = post_body([encode_batch(ReportBatch(id="a", router="router-0"))], replace(STATE, **well))
    (sent,) = msgspec.json.decode(body, type=list[Report])
    assert sent.in_flight == STATE.in_flight
    assert [one.instance for name in row for one in getattr(sent, name)] == ["i1"]


_WELL: dict[str, dict[str, Any]] = {"known_caches": {"batches_lost": 1, "blocks": 2}, "troubled_engines": {"words": "well"}}


def test_of_a_batch_a_row_that_json_cannot_carry_is_left_out() -> None:
    good = a_change("a")
    batch = ReportBatch(id="a", router="router-0", bindings=(replace(good, session="\ud800"), good))
    assert decode_batch(encode_batch(batch)).bindings == (good,)
