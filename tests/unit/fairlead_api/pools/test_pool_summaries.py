"""The summary of a pool, which is its line in lists."""

from typing import Any

import pytest

from fairlead_api.pools.store.summaries import declared_by


@pytest.mark.parametrize(
    ("spec", "declared"),
    [
        ({}, {"both": 1}),
        ({"replicas": 3, "roles": [{"name": "both", "minReplicas": 2}]}, {"both": 3}),
        ({"replicas": 1, "roles": [{"name": "prefill", "replicas": 4}, {"name": "decode", "replicas": 2}]}, {"prefill": 4, "decode": 2}),
        ({"roles": [{"name": "prefill", "minReplicas": 3}, {"name": "decode"}]}, {"prefill": 3, "decode": 1}),
        ({"replicas": "three"}, {}),
    ],
)
def test_the_instances_a_spec_declares_are_counted_by_role(spec: dict[str, Any], declared: dict[str, int]) -> None:
    assert declared_by(spec) == declared
