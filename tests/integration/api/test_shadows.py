"""What policies that only advise would have decided: sums over recorded decisions, on Postgres."""

from dataclasses import replace
from datetime import UTC, datetime
from math import sqrt
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import DecisionReason, DecisionRecord, KeptFor, ShadowChoice, Weighing
from fairlead_api.decisions.shadow_store import mean_by_sessions
from fairlead_client.problems import ApiProblem
from fairlead_testing.examples import examples
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance


def choice(policy: str, target: str | None, shorter: float = 0.0, *, chosen: str = "a") -> ShadowChoice:
    return ShadowChoice(
        policy=policy,
        target=target,
        alike=target == chosen,
        predicted_ttft_seconds=1.0 - shorter,
        hit_tokens=300,
        chosen_ttft_seconds=1.0,
        chosen_hit_tokens=100,
    )


def decided(number: int, at: float, session: str | None, *shadows: ShadowChoice, **more: object) -> DecisionRecord:
    record = DecisionRecord(
        id=f"d-{number}",
        pool=CHAT,
        request=f"r-{number}",
        session=session,
        at=at,
        policy="fairlead",
        table_version=1,
        chosen="a",
        served_by="a",
        runner_up=None,
        reason=DecisionReason.BEST_SCORE,
        prompt_tokens=1000,
        ttft_seconds=1.25,
        weighing=Weighing(rule="r", candidates=(), considered=1),
        shadows=shadows,
    )
    return replace(record, **more)  # type: ignore[arg-type]  # fields of the record


async def test_shadows_are_summed_in_all_and_by_hour_with_errors_by_session(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    now = api.clock().timestamp()
    hour = now // 3600 * 3600 - 3600
    found = (
        decided(0, hour - 600, "s1", choice("ear", "b", 0.2)),
        decided(1, hour + 10, "s1", choice("ear", "b", 0.4), choice("random", "a"), kept=KeptFor.LATE, sample_rate=0.5),
        decided(2, hour + 20, "s2", choice("ear", "c", 0.0), choice("random", None)),
        decided(3, hour + 30, None, choice("ear", "a"), choice("random", "b", -1.0), served_by="b"),
        decided(4, hour + 40, "s3"),
    )
    await api.router.post_report(a_report("1", decisions=found))
    report = await api.viewer.shadows(CHAT)
    ear, dice = report.policies
    assert (ear.policy, ear.decided_by, ear.asked, ear.alike, ear.failed) == ("ear", "fairlead", 4, 1, 0)
    assert (dice.asked, dice.alike, dice.failed) == (3, 1, 1)
    assert ear.ttft_change_seconds == pytest.approx(-0.2)
    assert ear.ttft_error_seconds == pytest.approx(sqrt((0.2**2 + 0.2**2) * 2) / 3), "two sessions: 0.2 below and above"
    assert ear.hit_change_tokens == pytest.approx(200.0)
    assert ear.off_seconds == pytest.approx(0.25), "the request that another instance served says nothing of it"
    assert dice.ttft_change_seconds == pytest.approx(1.0)
    assert dice.ttft_error_seconds is None, "one session has no spread"
    assert [(one.policy, one.at, one.asked) for one in report.hours] == [
        ("ear", datetime.fromtimestamp(hour, UTC), 3),
        ("random", datetime.fromtimestamp(hour, UTC), 3),
        ("ear", datetime.fromtimestamp(hour - 3600, UTC), 1),
    ]
    lately = await api.viewer.shadows(CHAT, start=datetime.fromtimestamp(hour + 15, UTC).isoformat())
    assert [one.asked for one in lately.policies] == [2, 2]
    shown = await api.viewer.decision("d-1")
    assert shown.shadows == found[1].shadows
    assert (await api.viewer.decision("d-4")).shadows == ()


async def test_shadows_are_of_a_pool_that_there_is(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem, match="Not found"):
        await api.viewer.shadows(CHAT)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    assert (await api.viewer.shadows(CHAT)).policies == []


@examples(100)
@given(st.lists(st.lists(st.integers(-100, 100), min_size=1, max_size=5), max_size=8))
def test_the_mean_and_its_error_are_those_of_the_values_by_session(clusters: list[list[int]]) -> None:
    values = [one for cluster in clusters for one in cluster]
    sums, sizes = [float(sum(cluster)) for cluster in clusters], [len(cluster) for cluster in clusters]
    mean, error = mean_by_sessions(
        float(len(values)),
        len(clusters),
        float(sum(n * n for n in sizes)),
        sum(sums),
        sum(s * s for s in sums),
        sum(s * n for s, n in zip(sums, sizes, strict=True)),
    )
    assert mean == (pytest.approx(fmean(values)) if values else None)
    if len(clusters) < 2:
        assert error is None
        return
    residuals = sum((s - fmean(values) * n) ** 2 for s, n in zip(sums, sizes, strict=True))
    assert error == pytest.approx(sqrt(residuals * len(clusters) / (len(clusters) - 1)) / len(values), abs=1e-6)
