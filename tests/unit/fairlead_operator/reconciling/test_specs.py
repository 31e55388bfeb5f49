"""Which spec is in force."""

from typing import Any

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_operator.reconciling.specs import AcceptedSpecs, read_spec_in_force

GOOD: dict[str, Any] = {"model": "m", "replicas": 2}
BAD: dict[str, Any] = {"model": "m", "replicas": 2, "routing": {"policy": "nobody"}}


def pool(spec: dict[str, Any], generation: int, kept: dict[str, Any] | None = None) -> dict[str, Any]:
    status = {"specInForce": {"generation": 1, "spec": kept}} if kept is not None else {}
    return {"metadata": {"generation": generation}, "spec": spec, "status": status}


def test_a_spec_that_stays_is_parsed_once() -> None:
    specs = AcceptedSpecs(BUILT_IN)
    first = read_spec_in_force(pool(GOOD, 1), specs)
    again = read_spec_in_force(pool({**GOOD, "simulated": None}, 1, kept=dict(GOOD)), specs)
    assert again.spec is first.spec
    assert again.previous is first.spec


def test_a_changed_spec_comes_into_force_after_the_one_before() -> None:
    specs = AcceptedSpecs(BUILT_IN)
    read_spec_in_force(pool(GOOD, 1), specs)
    changed = read_spec_in_force(pool({**GOOD, "replicas": 3}, 2, kept=GOOD), specs)
    assert changed.spec is not None
    assert changed.previous is not None
    assert (changed.previous.replicas, changed.spec.replicas) == (2, 3)


def test_a_refused_spec_leaves_the_last_good_one_in_force_however_often_it_is_read() -> None:
    specs = AcceptedSpecs(BUILT_IN)
    for _ in range(2):
        refused = read_spec_in_force(pool(BAD, 2, kept=GOOD), specs)
        assert refused.spec is not None
        assert refused.spec.routing.policy != "nobody"
        assert refused.problem is not None
        assert refused.problem.message.startswith("spec.routing.policy: 'nobody' cannot be used; choose one of cache-affinity, ")
    accepted = read_spec_in_force(pool(GOOD, 3, kept=GOOD), specs)
    assert accepted.problem is None


def test_a_pool_whose_template_was_accepted_before_keeps_it_in_force_while_it_is_refused() -> None:
    template = {
        "metadata": {"labels": {"fairlead.dev/team": "search", "app": "chat"}, "annotations": {"fairlead.dev/weight": "2"}},
        "spec": {"containers": [{"name": "engine", "image": "i:1"}]},
    }
    stored = {"model": "m", "replicas": 2, "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 2, "template": template}]}
    read = read_spec_in_force(pool(stored, 1, kept=stored), AcceptedSpecs(BUILT_IN))
    assert read.spec is not None, "its instances are kept, scaled and replaced"
    assert read.spec.roles[0].template == template, "with the hash that they have"
    assert read.problem is not None, "and the pool says what to remove"
    assert "fairlead.dev/team" in read.problem.message
    assert read_spec_in_force(pool(stored, 1), AcceptedSpecs(BUILT_IN)).spec is None


def test_a_kept_spec_with_another_fault_stays_refused_whatever_its_shape() -> None:
    shapes: tuple[Any, ...] = ([{"name": "nobody", "minReplicas": 1, "maxReplicas": 1}], "both", [None], [{"template": []}])
    for roles in shapes:
        assert read_spec_in_force(pool(BAD, 1, kept={"model": "m", "roles": roles}), AcceptedSpecs(BUILT_IN)).spec is None
