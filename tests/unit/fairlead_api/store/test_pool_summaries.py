"""A pool in a line."""

from typing import Any

import pytest

from fairlead_api.store.pools.pool_summaries import declared_by


@pytest.mark.parametrize(
    ("spec", "desired"),
    [
        ({}, 1),
        ({"replicas": 3, "roles": [{"name": "both", "minReplicas": 2}]}, 3),
        ({"replicas": 1, "roles": [{"name": "prefill", "replicas": 4}, {"name": "decode", "replicas": 2}]}, 6),
        ({"roles": [{"name": "prefill", "minReplicas": 3}, {"name": "decode"}]}, 4),
        ({"replicas": "three"}, 0),
    ],
)
def test_the_instances_a_spec_declares_are_counted_over_its_roles(spec: dict[str, Any], desired: int) -> None:
    assert declared_by(spec) == desired
