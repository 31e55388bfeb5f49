"""The number of a pool's newest decisions for each reason."""

import psycopg
import pytest

from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain


def decided(number: int, reason: DecisionReason, at: float, pool: PoolKey = CHAT) -> DecisionRecord:
    return DecisionRecord(
        id=f"d-{pool.name}-{number}",
        pool=pool,
        request=f"r-{number}",
        session=None,
        at=at + number,
        policy="fairlead",
        table_version=1,
        chosen="a",
        runner_up=None,
        reason=reason,
        prompt_tokens=1,
        weighing=Weighing(rule="r", candidates=(), considered=1),
    )


async def test_the_newest_decisions_of_one_pool_are_counted_by_reason_the_commonest_first(api: ApiInstance, database_url: str) -> None:
    other = PoolKey(namespace="default", name="other")
    for pool in (CHAT, other):
        await api.pool_operator.put_pool_state(pool, a_state(an_instance("a")))
    reasons = [DecisionReason.SLO_OVERLOADED] * 4 + [DecisionReason.BEST_SCORE] * 5 + [DecisionReason.SESSION_BOUND]
    begun = api.clock().timestamp() - 60
    found = [decided(number, reason, begun) for number, reason in enumerate(reasons)]
    elsewhere = [decided(number, DecisionReason.RANDOM, begun + 30, other) for number in range(3)]
    await api.router.post_report(a_report("1", decisions=(*found, *elsewhere)))

    async def counted(newest: int) -> list[tuple[DecisionReason, int]]:
        return [(one.reason, one.decisions) for one in (await api.viewer.decision_reasons(CHAT, newest=newest)).reasons]

    of_all = [(DecisionReason.BEST_SCORE, 5), (DecisionReason.SLO_OVERLOADED, 4), (DecisionReason.SESSION_BOUND, 1)]
    assert await counted(100) == of_all
    assert await counted(3) == [(DecisionReason.BEST_SCORE, 2), (DecisionReason.SESSION_BOUND, 1)]
    with psycopg.connect(plain(database_url), autocommit=True) as connection:  # by a newer version, rolled back since
        connection.execute("UPDATE decisions SET reason = 'whim' WHERE reason = %s", [DecisionReason.SESSION_BOUND])
    assert await counted(100) == of_all[:2]


async def test_reasons_are_of_a_pool_that_there_is_and_of_so_many_decisions_as_are_quickly_counted(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem, match="Not found"):
        await api.viewer.decision_reasons(CHAT)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    assert (await api.viewer.decision_reasons(CHAT)).reasons == []
    for newest in (0, 1001):
        with pytest.raises(ApiProblem) as refused:
            await api.viewer.decision_reasons(CHAT, newest=newest)
        assert (refused.value.problem.status, refused.value.problem.field) == (422, "newest")
