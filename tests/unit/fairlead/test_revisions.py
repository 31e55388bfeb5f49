"""The content of a revision, and the way back to one from a later spec."""

from fairlead.revisions import revision_data, revision_hash, rolled_back

TEMPLATE = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}
SPEC = {"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "maxReplicas": 8, "template": TEMPLATE}], "replicas": 3}


def test_a_revision_holds_engine_and_templates_and_nothing_else() -> None:
    assert revision_data(SPEC) == {"engine": {"type": "vllm"}, "roles": [{"name": "both", "template": TEMPLATE}]}
    assert revision_hash(revision_data(SPEC)) == revision_hash(revision_data({**SPEC, "replicas": 5}))
    assert revision_hash(revision_data(SPEC)) != revision_hash(revision_data({**SPEC, "engine": {"type": "vllm", "port": 1}}))


def test_going_back_keeps_numbers_and_bounds() -> None:
    newer = {"spec": {"containers": [{"name": "engine", "image": "vllm:2"}]}}
    now = {**SPEC, "replicas": 6, "roles": [{"name": "both", "maxReplicas": 16, "template": newer}]}
    assert rolled_back(now, revision_data(SPEC)) == {
        **SPEC,
        "replicas": 6,
        "roles": [{"name": "both", "maxReplicas": 16, "template": TEMPLATE}],
    }


def test_a_spec_that_leaves_all_to_the_defaults_goes_back_too() -> None:
    assert rolled_back({"model": "m", "engine": {"port": 9}}, revision_data({"model": "m"})) == {"model": "m"}
    assert rolled_back({"model": "m"}, revision_data({"model": "m", "engine": {"port": 9}})) == {"model": "m", "engine": {"port": 9}}
