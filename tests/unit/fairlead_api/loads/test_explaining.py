"""The explanation of an instance's load: the period that is read, and the sentences."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.infra import sharing
from fairlead_api.infra.sharing import Recent
from fairlead_api.loads.explaining import (
    LONGEST,
    SHARED,
    Evidence,
    LoadExplaining,
    Stretch,
    Stretches,
    explanation,
    told,
    two_windows,
)
from fairlead_api.loads.heatmaps import Grid, Kept, Limits, Place
from fairlead_client.resources.load_explanations import Flow, LoadExplanation, Moved, Senders, SenderShare, WindowChange

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
KEPT = Kept(seconds=timedelta(days=2), tens=timedelta(days=7))
POOL = PoolKey(namespace="default", name="chat")
WHERE = Grid(start=NOW, step=30, columns=2)
NOBODY = Senders(start=NOW, sent=0, recorded=0, sessions_seen=0, top=[], top_by_prefill=[])
NONE_MOVED = Moved(total=0, complete=True, instances=0, flows=[])


@given(st.integers(0, 10**6), st.integers(1, int(LONGEST.total_seconds())))
def test_a_stretch_is_widened_to_whole_samples_and_follows_one_as_long(offset: int, seconds: int) -> None:
    start = NOW + timedelta(seconds=offset)
    found = two_windows(start, start + timedelta(seconds=seconds), "x")
    middle = found.start + timedelta(seconds=found.step)
    unit = {"1s": 1, "10s": 10, "1m": 60}[found.source]
    assert middle <= start
    assert found.end >= start + timedelta(seconds=seconds)
    assert found.step - seconds < 2 * unit
    assert int(middle.timestamp()) % unit == found.step % unit == 0


def test_a_cell_of_a_heatmap_is_read_as_the_heatmap_reads_it() -> None:
    for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 3600):
        start = datetime.fromtimestamp(int(NOW.timestamp()) // step * step, UTC)
        found = two_windows(start, start + timedelta(seconds=step), "x")
        assert (found.step, found.source) == (step, Grid(start=start, step=step, columns=9).source)


def test_a_moment_of_which_only_minutes_are_kept_is_explained_by_minutes() -> None:
    for finest, step in ((1, 5), (10, 10), (60, 60)):
        found = two_windows(NOW, NOW + timedelta(seconds=5), "x", finest)
        assert (found.step, found.source) == (step, {1: "1s", 10: "10s", 60: "1m"}[finest])


def test_more_than_a_day_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most a day"):
        two_windows(NOW - timedelta(days=2), NOW, "now-2d")


def stretch(ttft: float | None, requests: int = 10, hits: float = 0.6, kv: float = 0.5) -> Stretch:
    values = {"hit_rate": (0.95, hits), "kv_usage": (kv, kv)} | ({} if ttft is None else {"ttft_p95": (ttft, ttft)})
    return Stretch(values=values, requests=requests, prompt_tokens=1000, hit_tokens=500, output_tokens=50)


def explained(
    now: dict[str, Stretch],
    before: dict[str, Stretch] | None = None,
    senders: Senders = NOBODY,
    left: Moved = NONE_MOVED,
    changes: tuple[WindowChange, ...] = (),
    roles: dict[str, Role] | None = None,
    metric: str = "ttft_p95",
) -> LoadExplanation:
    places = {name: Place(state=InstanceState.SERVING, role=(roles or {}).get(name, Role.BOTH)) for name in now}
    found = Stretches(now=now, before=before or {}, places=places, limits=Limits(slo=SloFacts(ttft_seconds=5.0, tpot_seconds=0.1)))
    known = Evidence(senders=senders, arrived=NONE_MOVED, left=left, changes=list(changes))
    return explanation(POOL, "a", metric, WHERE, found, known)


class Windows:
    """A store of a pool with these instances, which counts its reads."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.read = 0

    async def stretches(self, pool: PoolKey, where: Grid) -> Stretches:
        self.read += 1
        places = {name: Place(state=InstanceState.SERVING, role=Role.BOTH) for name in self.names}
        return Stretches(now={}, before={}, places=places, limits=Limits(slo=SloFacts(ttft_seconds=5.0, tpot_seconds=0.1)))

    async def evidence(
        self, pool: PoolKey, instance: str, start: datetime, end: datetime, senders_from: datetime, changes_from: datetime
    ) -> Evidence:
        return Evidence(senders=NOBODY, arrived=NONE_MOVED, left=NONE_MOVED, changes=[])


async def test_the_limit_that_the_reader_sees_is_judged_by_and_shown() -> None:
    explaining = LoadExplaining(Windows("a", "b"), KEPT, Recent(15, 60))

    async def limits(limit: float | None) -> dict[str, float | None]:
        begun = (NOW - timedelta(minutes=5)).isoformat()
        found = await explaining.explain(POOL, "a", "pending_prefill_tokens", begun, NOW.isoformat(), NOW, limit)
        return {one.metric: one.limit for one in found.figures}

    present = await limits(None)
    assert present["pending_prefill_tokens"] is None, "not measured"
    assert await limits(60_523.0) == present | {"pending_prefill_tokens": 60_523.0}
    assert await limits(60_397.0) == present | {"pending_prefill_tokens": 60_397.0}, "also of figures that were read before"
    for odd in (0.0, -1.0, inf, nan):
        with pytest.raises(InvalidInput, match="limit"):
            await limits(odd)


async def test_what_all_instances_had_is_read_once_for_a_small_part_of_the_stretch() -> None:
    store = Windows("a", "b")
    explaining = LoadExplaining(store, KEPT, Recent(15, 60))

    async def reads(instance: str, seconds: float, hours: int = 1) -> int:
        begun = NOW - timedelta(hours=hours)
        asked_at = NOW + timedelta(minutes=10, seconds=seconds)
        found = await explaining.explain(POOL, instance, "running", begun.isoformat(), NOW.isoformat(), asked_at)
        assert found.instance == instance
        return store.read

    shared = 3600 / SHARED
    assert await reads("a", 0) == await reads("b", 1) == await reads("a", shared - 0.1) == 1
    assert await reads("a", 1, hours=2) == 2, "another stretch"
    assert await reads("a", shared) == 3, "it is too old"
    store.names.append("c")
    assert await reads("c", shared + 1) == 4, "an instance that came meanwhile"


async def test_an_hour_that_ended_just_now_is_told_as_it_was_read_last_while_it_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "PAUSE_SECONDS", 0.0)
    store, monotonic = Windows("a", "b"), 0.0
    explaining = LoadExplaining(store, KEPT, Recent(15, 60, lambda: monotonic))

    async def ended(instance: str = "a") -> float:
        """Ask when all reads are done, and return the minutes from NOW to the end of the explained period."""
        await asyncio.sleep(0.01)
        now = NOW + timedelta(seconds=30 + monotonic)
        found = await explaining.explain(POOL, instance, "running", (now - timedelta(hours=1)).isoformat(), now.isoformat(), now)
        assert found.end - found.start == timedelta(minutes=61), "whole minutes"
        return (found.end - NOW).total_seconds() / 60

    assert [await ended(), await ended("b")] == [1, 1]
    assert store.read == 1
    monotonic = 59.9
    assert await ended() == 1, "nobody waits, and the answer has its own times"
    monotonic = 60.0
    assert await ended() == 2, "it was read again meanwhile"
    assert store.read == 2
    store.names.append("c")
    assert await ended("c") == 2
    assert store.read == 3, "an instance that came meanwhile"
    monotonic = 180.0
    assert await ended() == 4, "what is more than a minute old is told to nobody"


def test_an_instance_that_is_slow_alone_is_told_from_a_pool_that_is_short() -> None:
    alone = explained({"a": stretch(14.2), "b": stretch(2.0), "c": stretch(3.0), "d": stretch(1.0)})
    assert alone.causes[:2] == [
        "Higher here: 14.2 s, 7.1 times the median of the 3 others (2.00 s).",
        "It alone was over the TTFT limit of 5.00 s.",
    ]
    together = explained({"a": stretch(14.2), "b": stretch(9.0), "c": stretch(8.0), "d": stretch(1.0)})
    assert together.causes[:2] == [
        "Higher here: 14.2 s, 1.8 times the median of the 3 others (8.00 s).",
        "This one and 2 of the 3 others were over the TTFT limit of 5.00 s: the pool was short.",
    ]
    figure = next(one for one in together.figures if one.metric == "ttft_p95")
    assert (figure.others, figure.others_count, figure.others_over, figure.limit) == (8.0, 3, 2, 5.0)


def test_only_instances_of_the_same_role_are_the_others() -> None:
    found = explained({"a": stretch(4.0), "b": stretch(1.0), "c": stretch(0.1)}, roles={"c": Role.DECODE})
    assert next(one for one in found.figures if one.metric == "ttft_p95").others == 1.0


def test_what_is_not_measured_is_none_and_says_nothing() -> None:
    found = explained({"a": stretch(None, requests=0), "b": stretch(3.0)})
    figure = next(one for one in found.figures if one.metric == "ttft_p95")
    assert (figure.maximum, figure.mean, figure.before, figure.others) == (None, None, None, 3.0)
    assert found.causes == []


def test_few_sessions_with_most_tokens_are_named_with_what_is_known_of_the_rest() -> None:
    top = [
        SenderShare(session=f"s{number}", requests=5, prompt_tokens=900, tokens_share=share) for number, share in enumerate((0.3, 0.2, 0.1))
    ]
    senders = Senders(start=NOW, sent=240, recorded=64, sessions_seen=61, top=top, top_by_prefill=[])
    found = explained({"a": stretch(9.0)}, senders=senders)
    assert "2 of 61 sessions sent about 50.0 % of the prompt tokens (estimated from 64 of 240 requests)." in found.causes
    too_few = Senders(start=NOW, sent=240, recorded=3, sessions_seen=3, top=top, top_by_prefill=[])
    assert not any("sessions sent" in cause for cause in explained({"a": stretch(9.0)}, senders=too_few).causes)
    without = [replace(one, tokens_share=None) for one in top]
    unknown = Senders(start=NOW, sent=240, recorded=14, sessions_seen=61, top=without, top_by_prefill=[])
    assert not any("sessions sent" in cause for cause in explained({"a": stretch(9.0)}, senders=unknown).causes)


def test_more_to_compute_than_elsewhere_is_no_cause_of_its_own_where_the_pool_was_short() -> None:
    def loaded(pending: float, ttft: float) -> Stretch:
        found = stretch(ttft)
        return replace(found, values={**found.values, "pending_prefill_tokens": (pending, pending)})

    short = explained({"a": loaded(19_286, 5.26), "b": loaded(12_421, 5.82)}, metric="pending_prefill_tokens")
    assert short.causes[:2] == [
        "Higher here: 19,286 tokens, 1.6 times the other instance (12,421).",
        "Both were over the TTFT limit of 5.00 s: the pool was short.",
    ]
    in_time = explained({"a": loaded(19_286, 3.26), "b": loaded(12_421, 2.82)}, metric="pending_prefill_tokens")
    assert in_time.causes[1] == "In this time it stayed within the TTFT limit."


def test_what_changed_minutes_before_is_no_cause() -> None:
    start = NOW + timedelta(seconds=30)
    told = [
        any("it became Starting" in cause for cause in explained({"a": stretch(9.0)}, changes=(change,)).causes)
        for before in (0, 30, 31, 223)
        for change in [WindowChange(at=start - timedelta(seconds=before), kind="state", words="it became Starting", actor=None)]
    ]
    assert told == [True, True, False, False]


def test_where_it_is_recorded_sessions_are_named_by_what_had_to_be_prefilled() -> None:
    cached = SenderShare(session="long", requests=9, prompt_tokens=90_000, tokens_share=0.9, prefill_tokens=100, prefill_share=0.05)
    fresh = SenderShare(session="new", requests=9, prompt_tokens=9_000, tokens_share=0.09, prefill_tokens=1_900, prefill_share=0.95)
    senders = Senders(start=NOW, sent=18, recorded=18, sessions_seen=8, top=[cached, fresh], top_by_prefill=[fresh, cached])
    assert (
        "1 of 8 sessions sent 95.0 % of the tokens that the instance had to prefill."
        in explained({"a": stretch(9.0)}, senders=senders).causes
    )


def test_exact_sums_are_told_with_what_has_not_ended_and_a_session_without_a_known_name_is_one_of_them() -> None:
    lost = SenderShare(session=None, requests=90, prompt_tokens=90_000, tokens_share=0.9, is_unnamed=True)
    senders = Senders(start=NOW, sent=120, recorded=118, sessions_seen=8, top=[lost], top_by_prefill=[], is_whole=True, unnamed_share=0.9)
    sentence = "1 of 8 sessions sent 90.0 % of the prompt tokens (of 118 of 120 requests, those that have ended)."
    assert sentence in explained({"a": stretch(9.0)}, senders=senders).causes
    whole = replace(senders, sent=118)
    assert "1 of 8 sessions sent 90.0 % of the prompt tokens." in explained({"a": stretch(9.0)}, senders=whole).causes


@pytest.mark.parametrize(("requests", "is_told"), [(1, False), (4, False), (5, True)])
def test_a_cache_is_not_said_to_help_little_for_a_handful_of_requests(requests: int, is_told: bool) -> None:
    found = explained({"a": stretch(9.0, requests=requests, hits=0.0), "b": stretch(1.0)})
    assert any("Its cache helped little" in words for words in found.causes) == is_told


def test_few_requests_a_second_are_not_told_as_none() -> None:
    assert [told(value, "requests/s") for value in (0.0, 0.0033, 0.04, 3.14)] == [
        "0.00 requests/s",
        "12 requests/h",
        "0.04 requests/s",
        "3.1 requests/s",
    ]


def test_its_rise_its_traffic_its_cache_its_moves_and_changes_are_told() -> None:
    found = explained(
        {"a": stretch(9.0, requests=50, hits=0.1, kv=0.95), "b": stretch(1.0), "c": stretch(1.0)},
        before={"a": stretch(1.0)},
        left=Moved(total=31, complete=True, instances=3, flows=[Flow(instance="b", count=20)]),
        changes=(WindowChange(at=NOW, kind="revision", words="revision 7 changed slo.ttft from 5s to 3s", actor="oncall"),),
    )
    assert found.causes[2:] == [
        "It rose just then: 1.00 s in the stretch before, 9.00 s in this one.",
        "It was sent 50 requests; the median of the other instances is 10.",
        "Its cache helped little: a mean prefix hit rate of 10.0 %, 60.0 % elsewhere.",
        "Its KV cache was 95.0 % full, so the engine may have preempted requests.",
        "31 sessions left for 3 others.",
        "At 10:00:00 UTC, before it: revision 7 changed slo.ttft from 5s to 3s by oncall.",
    ]
