"""The merge patch of the pool that follows from a request."""

from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import parse_spec
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.plans.changes import checked, replicas_of, section_patch
from fairlead_api.plans.kinds.scale import replicas_patch, scaled_by_its_object
from fairlead_api.plans.kinds.weight import wanted_weight
from fairlead_api.plans.merge_patches import merged
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest

PAIR: dict[str, Any] = {"model": "m", "roles": [{"name": "prefill", "replicas": 4, "maxReplicas": 6}, {"name": "decode"}]}


def test_a_role_of_a_pair_is_scaled_in_the_pool_and_the_other_stays() -> None:
    patch = replicas_patch(PlanRequest(kind=PlanKind.SCALE, replicas=5, role=Role.PREFILL), PAIR)
    after = checked(PAIR, patch, BUILT_IN)
    assert [replicas_of(after, role.name) for role in after.roles] == [5, 1]
    assert [replicas_of(parse_spec(PAIR), role) for role in (Role.PREFILL, Role.DECODE)] == [4, 1]


def test_a_role_whose_number_the_pool_leaves_out_is_scaled_by_its_own_object() -> None:
    wanted = [PlanRequest(kind=PlanKind.SCALE, replicas=3, role=role) for role in (Role.PREFILL, Role.DECODE)]
    assert [scaled_by_its_object(request, PAIR) for request in wanted] == [None, Role.DECODE]
    assert scaled_by_its_object(PlanRequest(kind=PlanKind.SCALE, replicas=3, role=Role.BOTH), {"roles": [{"name": "both"}]}) is None


def test_a_pair_is_not_scaled_without_a_role_nor_beyond_its_bounds() -> None:
    with pytest.raises(InvalidInput, match=r"^spec.roles\[0\].replicas: 4 cannot be used; it already has this value"):
        replicas_patch(PlanRequest(kind=PlanKind.SCALE, replicas=4, role=Role.PREFILL), PAIR)
    with pytest.raises(InvalidInput, match="write prefill or decode"):
        replicas_patch(PlanRequest(kind=PlanKind.SCALE, replicas=5), PAIR)
    with pytest.raises(InvalidInput, match="must not be greater than its maxReplicas"):
        checked(PAIR, replicas_patch(PlanRequest(kind=PlanKind.SCALE, replicas=7, role=Role.PREFILL), PAIR), BUILT_IN)


def test_parameters_are_replaced_as_a_whole() -> None:
    spec = {"model": "m", "routing": {"policy": "dualmap", "parameters": {"candidates": 3, "rebalance": False}}}
    patch = section_patch(PlanRequest(kind=PlanKind.POLICY, fields={"parameters": {"candidates": 4}}), spec)
    assert merged(spec, patch)["routing"] == {"policy": "dualmap", "parameters": {"candidates": 4}}


def test_a_policy_that_the_pool_cannot_use_is_refused_here_as_the_kubernetes_api_does_not_know_policies() -> None:
    spec = {"model": "m"}
    for fields, words in (({"policy": "nope"}, "choose one of"), ({"policy": "static-pd"}, "prefill")):
        with pytest.raises(InvalidInput, match=words):
            checked(spec, section_patch(PlanRequest(kind=PlanKind.POLICY, fields=fields), spec), BUILT_IN)


def test_a_weight_is_a_number_within_its_bounds_or_none() -> None:
    assert [wanted_weight(weighed({"weight": one})) for one in (0.5, 2, None)] == [0.5, 2.0, None]
    for fields, field in (({"weight": 0}, "fields.weight"), ({"weight": True}, "fields.weight"), ({"wieght": 2}, "fields.wieght")):
        with pytest.raises(InvalidInput) as refused:
            wanted_weight(weighed(fields))
        assert refused.value.field == field


def weighed(fields: dict[str, Any]) -> PlanRequest:
    return PlanRequest(kind=PlanKind.WEIGHT, instance="a", fields=fields)
