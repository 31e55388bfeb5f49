import pytest

from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome, Tally
from fairlead_simulator.replay.summaries import outcome_document, summary_document, summary_lines
from fairlead_simulator.traces.sessions import find_sessions

NO_SESSIONS = find_sessions([])


def outcome(verdict: ReplayVerdict, **fields: object) -> RequestOutcome:
    known: dict[str, object] = {"index": 0, "session": "s", "due_seconds": 0.0, "lag_seconds": 0.0, "verdict": verdict}
    return RequestOutcome(**(known | fields))  # type: ignore[arg-type]  # a builder: fields are checked by what the tests read


def served(ttft: float, e2e: float, **fields: object) -> RequestOutcome:
    return outcome(
        ReplayVerdict.SERVED, ttft_seconds=ttft, e2e_seconds=e2e, prompt_tokens=100, cached_tokens=40, completion_tokens=11, **fields
    )


def tally_of(*outcomes: RequestOutcome, slo: float = 5.0, scale: float = 1.0) -> Tally:
    tally = Tally(slo, scale)
    for one in outcomes:
        tally.send()
        tally.end(one)
    return tally


def test_every_outcome_is_counted_once_and_in_its_place() -> None:
    tally = tally_of(
        served(1.0, 2.0, instance="chat-b1"),
        served(6.0, 8.0, instance="chat-b2", failovers=1),
        outcome(ReplayVerdict.REJECTED, reason="slo-unreachable", retries=2),
        outcome(ReplayVerdict.REJECTED, reason="slo-unreachable"),
        outcome(ReplayVerdict.FAILED, reason="connection-broken"),
        outcome(ReplayVerdict.CANCELLED, ttft_seconds=0.5, lag_seconds=0.25),
    )
    summary = tally.summary(10.0, 0.5)
    assert (summary.sent, summary.served, summary.rejected, summary.failed, summary.cancelled) == (6, 2, 2, 1, 1)
    assert summary.accounted
    assert summary.rejections == {"slo-unreachable": 2}
    assert summary.failures == {"connection-broken": 1}
    assert summary.instances == {"chat-b1": 1, "chat-b2": 1}
    assert (summary.failovers, summary.retries, summary.largest_lag_seconds) == (1, 2, 0.25)
    assert summary.slo_attainment == 2 / 6, "rejected, failed and late ones are misses"
    assert summary.token_hit_rate == 0.4
    assert (summary.ttft.p50, summary.e2e.p90) == (1.0, 8.0)
    assert summary.tpot.p50 == pytest.approx(0.1)


def test_a_request_without_an_end_does_not_sum() -> None:
    tally = tally_of(served(1.0, 2.0))
    tally.send()
    summary = tally.summary(1.0, None)
    assert not summary.accounted
    assert "DOES NOT SUM" in summary_lines(summary, NO_SESSIONS)[0]


def test_the_slo_is_strict_and_meant_in_scaled_seconds() -> None:
    assert tally_of(served(0.25, 1.0), slo=5.0, scale=20.0).summary(1.0, None).slo_attainment == 0.0
    summary = tally_of(served(0.24, 1.0), slo=5.0, scale=20.0).summary(1.0, None)
    assert summary.slo_attainment == 1.0
    assert summary.ttft.p50 == pytest.approx(4.8)


def test_figures_of_an_empty_replay_are_absent_not_zero() -> None:
    summary = Tally(5.0).summary(0.0, None)
    assert (summary.slo_attainment, summary.token_hit_rate, summary.ttft.p50) == (None, None, None)
    assert any(line.startswith("TTFT") and "–" in line for line in summary_lines(summary, NO_SESSIONS))


def test_memory_is_bounded_when_asked_for() -> None:
    tally = Tally(5.0, remembered=3)
    for number in range(10):
        tally.send()
        tally.end(served(float(number), 20.0))
    summary = tally.summary(1.0, None)
    assert (summary.served, summary.ttft.p50) == (10, 8.0)


def test_documents_carry_everything() -> None:
    document = summary_document(tally_of(served(1.0, 2.0)).summary(1.0, 0.5), NO_SESSIONS)
    assert document["ttft"]["p99"] == 1.0
    assert document["ideal_token_hit_rate"] == 0.5
    assert document["sessions"] == {"named": 0, "inferred": 0, "unnamed_requests": 0, "largest": 0}
    assert outcome_document(served(1.0, 2.0))["tpot_seconds"] == pytest.approx(0.1)
    assert outcome_document(outcome(ReplayVerdict.REJECTED))["tpot_seconds"] is None
