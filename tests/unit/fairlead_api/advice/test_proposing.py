"""The operator's advice becomes a proposal, independent of other findings about the pool."""

from dataclasses import replace

from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause
from fairlead.advice.situations import SeenAdvice
from fairlead.instances import Role
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead_api.advice.asking import Situations
from fairlead_api.advice.proposing import advised
from fairlead_testing.builders.situations import arriving, served, well, with_instance


def test_advice_stays_a_proposal_while_another_finding_explains_the_late_requests() -> None:
    seen = SeenAdvice(
        controller=Controller.SCALING,
        role=Role.BOTH,
        current=4,
        recommended=6,
        replicas=6,
        verdict=Verdict.ADVISED,
        hold=None,
        reason="5.4 instances are needed; advised only",
        age_seconds=20.0,
    )
    pool = well(scaling=ScalingSpec(mode=ScalingMode.ADVISE), advised=(seen,))
    for number in range(4):
        pool = with_instance(pool, number, served=served(100, 40))
    pool = replace(pool, signals=arriving(9000.0))
    assert [one.cause for one in advise([pool])] == [Cause.SATURATED]
    assert [proposal.request.replicas for _, proposal in advised(Situations(window_seconds=100.0, pools=(pool,)))] == [6]
