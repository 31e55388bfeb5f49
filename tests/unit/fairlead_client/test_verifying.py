"""A session's history made from any routers' reports has no contradiction, and any later change of it is detected."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.binding_races import Held
from fairlead.reports.batches import Report
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.tables import PoolKey
from fairlead_api.sessions.store.bindings import _Judging
from fairlead_api.sessions.store.rows import SessionRow
from fairlead_client.resources.sessions import BindingHistoryItem, SessionDetail, SessionSummary
from fairlead_client.verifying import history_contradictions
from fairlead_testing.examples import examples

CHAT = PoolKey(namespace="default", name="chat")
KEY = (1, "s")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Stored:
    """A session and its holders, as the database keeps them after each report."""

    def __init__(self) -> None:
        self.row: SessionRow | None = None
        self.holders: list[dict[str, Any]] = []

    def report(self, *changes: BindingChange) -> None:
        report = Report(id="r", router="router-0", sent_at=0.0, bindings=changes)
        judging = _Judging(report, changes, {CHAT: 1}, {(1, name) for name in "abc"})
        rows = {} if self.row is None else {KEY: replace(self.row, holders=[], released={}, moves=[])}
        judging.judge(rows, () if rows else [KEY])
        self.row = rows[KEY]
        for holder in self.holders:
            holder["released_at"] = self.row.released.get(holder["version"], holder["released_at"])
        self.holders += self.row.holders

    def release(self, at: datetime) -> None:
        """Release the session, as when its instance is gone, the session has ended or a person releases it."""
        if self.row is not None and self.row.held.instance is not None:
            ended = self.holders[-1]["released_at"] = max(at, self.row.bound_at)
            self.row = replace(self.row, held=replace(self.row.held, instance=None, rank=None), ended_at=ended)

    def detail(self) -> SessionDetail:
        assert self.row is not None
        row, held = self.row, self.row.held
        session = SessionSummary(
            pool=str(CHAT),
            session="s",
            instance=held.instance,
            rank=held.rank,
            version=held.version,
            reason=BindingReason(row.reason),
            bound_at=row.bound_at,
            last_seen_at=row.last_seen_at,
            migrations=row.migrations,
            context_tokens=0,
        )
        names = BindingHistoryItem.__dataclass_fields__
        history = [BindingHistoryItem(**{name: holder[name] for name in names}) for holder in self.holders]
        return SessionDetail(session=session, history=[replace(one, reason=BindingReason(one.reason)) for one in history])


def a_change(stored: Stored, number: int, instance: str, rank: int | None, at: datetime, *, knows: bool, shared: bool) -> BindingChange:
    """Return a change by a router that knows the last home, or otherwise believes the session to be new."""
    held = Held(instance=None, version=0, router="") if stored.row is None else stored.row.held
    home = stored.holders[-1] if stored.holders and knows else {}
    reason = BindingReason.SLO if home and (home["instance"], home["rank"]) != (instance, rank) else BindingReason.COLD
    return BindingChange(
        id=f"m{number}",
        pool=CHAT,
        session="s",
        instance=instance,
        rank=rank,
        previous=home.get("instance"),
        previous_rank=home.get("rank"),
        reason=reason,
        at=at.timestamp(),
        based_on=held.version,
        shared=shared,
    )


STEPS = st.tuples(
    st.sampled_from(["change"] * 6 + ["release", "share"]),
    st.sampled_from("abc"),
    st.sampled_from([None, None, 0, 1]),
    st.integers(-5, 60),
    st.booleans(),
)


def lived(steps: list[tuple[str, str, int | None, int, bool]]) -> Stored:
    stored, at = Stored(), NOW
    for number, (what, instance, rank, seconds, knows) in enumerate(steps):
        at += timedelta(seconds=seconds)
        if what == "release":
            stored.release(at)
        else:
            stored.report(a_change(stored, number, instance, rank, at, knows=knows, shared=what == "share"))
    return stored


@examples(200)
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_no_history_that_reports_and_releases_make_contradicts_itself(steps: list[tuple[str, str, int | None, int, bool]]) -> None:
    stored = lived(steps)
    if stored.row is not None:
        assert history_contradictions(stored.detail()) == []


MOVED = lived([("change", name, None, 10, True) for name in "abca"]).detail()
LATER = timedelta(seconds=3)


def with_holder(place: int, **changes: Any) -> SessionDetail:
    history = list(MOVED.history)
    return replace(MOVED, history=[*history[:place], replace(history[place], **changes), *history[place + 1 :]])


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "changed",
    [
        lambda place: with_holder(place, instance="z") if place == 3 else with_holder(place, version=9),
        lambda place: with_holder(place, released_at=None if place < 3 else NOW + timedelta(days=1)),
        lambda place: with_holder(place, released_at=NOW - timedelta(days=1)),
        lambda place: with_holder(place, bound_at=MOVED.history[place].bound_at + (LATER if place == 3 else timedelta(days=1))),
        lambda place: with_holder(place, migration="m9" if place == 0 else None),
        lambda place: replace(MOVED, history=[one for one in MOVED.history if one is not MOVED.history[place or 1]]),
        lambda _: replace(MOVED, history=[]),
        *(
            lambda _, change=change: replace(MOVED, session=replace(MOVED.session, **change))
            for change in (
                {"instance": "b"},
                {"instance": None},
                {"version": 7},
                {"bound_at": NOW},
                {"reason": BindingReason.DRAIN},
                {"migrations": 2},
                {"migrations": 4},
            )
        ),
    ],
)
def test_whatever_is_changed_in_a_history_is_found(changed: Callable[[int], SessionDetail], place: int) -> None:
    assert history_contradictions(MOVED) == []
    assert history_contradictions(changed(place)) != []
