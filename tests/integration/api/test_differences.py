"""Differences of a heatmap's region, from the API on Postgres.

All recorded values of requests, and no others, are compared in the region and outside of it.
"""

from typing import Any

import pytest

from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, KeptFor, RequestOutcome, Weighing
from fairlead.reports.rejections import RejectionReason
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.load_explanations import Difference
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance

MINUTE = 60.0
AGO = 20 * MINUTE
"""The time since the region's beginning; it lasts five minutes."""
REGION = {"start": "now-20m", "end": "now-15m"}


def a_request(name: str, at: float, instance: str, miss: int, **changes: Any) -> DecisionRecord:
    """Return a decision of which a fifth is recorded; the instance's candidate is one of its two ranks."""
    score = CandidateScore(
        instance=f"{instance}#1", hit_tokens=0, miss_tokens=miss, pending_tokens=0, predicted_ttft_seconds=0.1, total=None
    )
    other = CandidateScore(instance=f"{instance}#0", hit_tokens=0, miss_tokens=7, pending_tokens=0, predicted_ttft_seconds=0.1, total=None)
    values: dict[str, Any] = {
        "id": name, "pool": CHAT, "request": name, "session": f"s-{name}", "at": at, "policy": "fairlead", "table_version": 1,
        "chosen": instance, "chosen_rank": 1, "runner_up": None, "reason": DecisionReason.SESSION_COLD, "prompt_tokens": 1_000,
        "sample_rate": 0.2, "weighing": Weighing(rule="none", candidates=(other, score), considered=2), **changes,
    }  # fmt: skip
    return DecisionRecord(**values)


async def recorded(api: ApiInstance) -> None:
    """Store 60 long uncached prompts of one session at `a` as the region, and 240 short cached prompts of others at
    `b`.

    The latter are before and after it. Requests that belong to neither are stored, too.
    """
    nodes = {"a": "gpu-1", "b": "gpu-2"}
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name, node=node) for name, node in nodes.items())))
    other = PoolKey(namespace="default", name="other")
    await api.pool_operator.put_pool_state(other, a_state(an_instance("a"), uid="uid-2"))
    begun = api.clock().timestamp() - AGO
    inside = [
        a_request(f"in-{n}", begun + 2 + n, "a", 30_000, session="heavy", prompt_tokens=30_000, priority_class="batch") for n in range(60)
    ]
    outside = [a_request(f"out-{n}", begun + (-MINUTE if n % 2 else 6 * MINUTE) + n / 10, "b", 40) for n in range(240)]
    left_out = [
        a_request("old", begun - 3600, "b", 0),
        a_request("of-another-pool", begun + 5, "a", 0, pool=other),
        a_request("refused", begun + 5, "", 0, chosen_rank=None, reason=DecisionReason.NONE_CHOSEN, kept=KeptFor.REFUSED,
                  outcome=RequestOutcome.REFUSED, rejection=RejectionReason.QUEUE_FULL, priority_class="batch"),
    ]  # fmt: skip
    await api.router.post_report(a_report("r1", decisions=(*inside, *outside, *left_out)))


async def test_what_is_only_in_the_region_is_named_with_its_counts_and_the_surest_is_first(api: ApiInstance) -> None:
    await recorded(api)
    found = await api.viewer.differences(CHAT, "a", **REGION)
    assert (found.inside, found.outside, found.enough, found.instances) == (60, 240, True, ["a"])
    by = {(one.about, one.value): one for one in found.found}
    for named in (("session", "heavy"), ("class", "batch"), ("prompt", "16,000 to 64,000"), ("hits", "nothing cached"), ("node", "gpu-1")):
        one = by[named]
        assert (one.inside, one.outside, one.inside_share, one.outside_share) == (60, 0, 1.0, 0.0), named
    assert by["hits", "above 90 % cached"].outside == by["node", "gpu-2"].outside == 240
    assert ("reason", "session-cold") not in by, "the same on both sides"

    def surety(one: Difference) -> float:
        return abs(one.inside_share - one.outside_share) / one.error

    assert [surety(one) for one in found.found] == sorted(map(surety, found.found), reverse=True)


async def test_too_few_requests_are_compared_with_nothing(api: ApiInstance) -> None:
    await recorded(api)
    found = await api.viewer.differences(CHAT, "a", start="now-20m", end="now-1185s")
    assert found.inside < 20
    assert (found.enough, found.found) == (False, [])
    assert (await api.viewer.differences(CHAT, "nobody", **REGION)).inside == 0


@pytest.mark.parametrize(
    ("query", "field"), [({"instances": " , "}, "instances"), ({"instances": "a", "rest_start": "now-2d"}, "rest_from")]
)
async def test_what_cannot_be_compared_is_refused_by_its_field(query: dict[str, str], field: str, api: ApiInstance) -> None:
    await recorded(api)
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.differences(CHAT, **query)
    assert (caught.value.problem.status, caught.value.problem.field) == (422, field)
