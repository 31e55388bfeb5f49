"""Every reason for a refusal has an HTTP answer, a place on a page, and words."""

import pytest

from fairlead.instances import Role
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason


@pytest.mark.parametrize("reason", list(RejectionReason))
def test_a_reason_has_a_status_and_words(reason: RejectionReason) -> None:
    facts = reason.facts
    assert 400 <= facts.status < 600
    assert facts.title and facts.suggestion.endswith(".") and not facts.finding.endswith(".")
    assert "{" not in facts.finding.format(ttft="5 s", tpot="0.1 s")


def test_the_reasons_of_a_role_are_those_for_which_its_instances_are_short() -> None:
    assert {reason.facts.short for reason in FOR_PREFILL} == {Role.PREFILL}
    assert {reason.facts.short for reason in FOR_DECODE} == {Role.DECODE}
    assert not FOR_PREFILL & FOR_DECODE


def test_what_is_refused_by_an_estimate_is_asked_for_again_later() -> None:
    assert {reason.facts.status for reason in RejectionReason if reason.facts.by_estimate} == {429}
