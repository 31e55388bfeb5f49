"""For whose prompts a request waited, derived from the times at which each instance computed which prompt."""

import pytest
from benchmarks.apart_losses import losses, prefills_of, spent

from fairlead_simulator.simulation.jobs import Job, Phase


def served(index: int, router: int, *, sent: float, first: float, finished: float, tokens: int = 11, instance: str = "b000") -> Job:
    job = Job(index=index, arrives_at=sent, input_tokens=1000, output_tokens=tokens, blocks=(), session=None)
    job.router, job.instance, job.phase = router, instance, Phase.FINISHED
    job.admitted_at, job.first_token_at, job.finished_at = sent, first, finished
    return job


def test_a_prefill_begins_when_the_one_before_on_its_instance_is_over() -> None:
    jobs = [served(0, 0, sent=0.0, first=2.0, finished=9.0), served(1, 1, sent=1.0, first=5.0, finished=9.0)]
    elsewhere = served(2, 0, sent=1.0, first=3.0, finished=9.0, instance="b001")
    found = prefills_of([*reversed(jobs), elsewhere])
    assert [(one.begin, one.end, one.router) for one in found["b000"]] == [(0.0, 2.0, 0), (2.0, 5.0, 1)]
    assert [(one.begin, one.end) for one in found["b001"]] == [(1.0, 3.0)]


def test_time_is_divided_between_own_prompts_and_those_of_other_routers() -> None:
    asked = served(0, 0, sent=0.0, first=1.0, finished=11.0)
    own, others = served(1, 0, sent=2.0, first=3.0, finished=20.0), served(2, 1, sent=6.0, first=10.0, finished=20.0)
    prefills = prefills_of([asked, own, others])["b000"]
    assert spent(prefills, asked, 1.0, 11.0) == pytest.approx((0.1, 0.4))
    assert spent(prefills, asked, 1.0, 1.0) == (0.0, 0.0)


def test_each_measured_request_is_refused_late_slow_or_in_time() -> None:
    refused = Job(index=1, arrives_at=0.0, input_tokens=1000, output_tokens=11, blocks=(), session=None)
    refused.phase = Phase.REFUSED
    late = served(2, 0, sent=0.0, first=6.0, finished=7.0)
    slow = served(3, 0, sent=6.0, first=7.0, finished=9.0)
    quick = served(4, 0, sent=8.0, first=9.0, finished=9.5)
    alone = served(5, 0, sent=9.0, first=9.5, finished=9.5, tokens=1)
    before = served(0, 1, sent=0.0, first=3.0, finished=3.0)
    found = list(losses([before, refused, late, slow, quick, alone], 1, 5.0, 0.1))
    assert [fate for fate, _, _ in found] == ["refused", "late", "slow", "in time", "in time"]
    assert found[1][1:] == pytest.approx((0.0, 0.5)), "another router's prompt was computed for half of its wait"
    assert found[2][1:] == pytest.approx((0.5, 0.0))
