"""The differences between two documents."""

from fairlead_api.pools.diffs import diff


def test_a_diff_names_each_changed_path_and_lists_by_name() -> None:
    before = {"replicas": 2, "slo": {"ttft": "5s"}, "roles": [{"name": "both", "maxReplicas": 4}], "a/b": 1}
    after = {"replicas": 3, "slo": {"ttft": "5s", "tpot": "1s"}, "roles": [{"name": "both", "maxReplicas": 8}]}
    assert diff(before, after) == [
        {"op": "remove", "path": "/a~1b", "before": 1, "after": None},
        {"op": "replace", "path": "/replicas", "before": 2, "after": 3},
        {"op": "replace", "path": "/roles/both/maxReplicas", "before": 4, "after": 8},
        {"op": "add", "path": "/slo/tpot", "before": None, "after": "1s"},
    ]
    assert diff(before, before) == []
