"""Plans that go back to a revision: which one, the patch, and the replaced instances. Also drains of an instance."""

from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.revisions import revision_data, revision_name
from fairlead.rollout_specs import RolloutSpec
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.kinds.drain import drain_effect, undrain_effect
from fairlead_api.plans.kinds.rollback import rollback_effect, rollback_of, rollback_patch
from fairlead_api.plans.kinds.rollout import rollout_effect
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.rollouts import StoredRevision, rollout_of
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_testing.running.api import CHAT


def template(image: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", "image": image}]}}


def spec(prefill: str, decode: str, **engine: Any) -> dict[str, Any]:
    roles = [{"name": "prefill", "replicas": 2, "template": template(prefill)}, {"name": "decode", "template": template(decode)}]
    return {"model": "m", "engine": {"type": "vllm", **engine}, "roles": roles}


def revisions(*specs: dict[str, Any]) -> list[StoredRevision]:
    """Return revisions numbered from 1, in a different order."""
    made = [
        StoredRevision(name=revision_name("chat", revision_data(one)), number=number, created_at=None, data=revision_data(one))
        for number, one in enumerate(specs, 1)
    ]
    return made[::-1]


OLDEST, OLD, NOW = spec("v1", "v1", port=9000), spec("v2", "v2"), {**spec("v3", "v3"), "replicas": 1}
KEPT = revisions(OLDEST, OLD, NOW)


def back(**asked: Any) -> dict[str, Any]:
    return merged(NOW, rollback_patch(PlanRequest(kind=PlanKind.ROLLBACK, **asked), NOW, KEPT))


def test_without_a_number_it_goes_to_the_newest_revision_that_differs() -> None:
    assert back() == {**OLD, "replicas": 1}


def test_a_number_names_the_revision_also_one_with_another_engine_section() -> None:
    assert back(revision=1) == {**OLDEST, "replicas": 1}
    forth = rollback_patch(PlanRequest(kind=PlanKind.ROLLBACK, revision=2), OLDEST, KEPT)
    assert merged(OLDEST, forth) == OLD, "a member that the revision does not have goes away"


def test_one_role_goes_back_alone_and_the_engine_stays() -> None:
    assert back(revision=1, role=Role.PREFILL) == {**spec("v1", "v3"), "replicas": 1}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"revision": 7}, "revision: 7 cannot be used; the pool's revisions are: 3, 2, 1"),
        ({"revision": 3}, "revision: 3 cannot be used; the spec already has these values; write another"),
        ({"role": Role.BOTH}, "role: 'both' cannot be used; write prefill or decode"),
    ],
)
def test_what_cannot_be_gone_back_to_is_said_in_one_line(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        back(**asked)
    assert str(caught.value) == words


def test_without_another_revision_there_is_nothing_to_go_back_to() -> None:
    with pytest.raises(InvalidInput, match="no other revision"):
        rollback_patch(PlanRequest(kind=PlanKind.ROLLBACK), NOW, revisions(NOW))


def test_a_rollout_is_told_with_its_revisions_newest_first_and_what_going_back_changes() -> None:
    status = {
        "currentRevision": KEPT[1].name,
        "updateRevision": KEPT[0].name,
        "conditions": [{"type": "Progressing", "reason": "RolloutRegressed", "message": "worse"}],
        "rollout": {"beganAt": "2026-11-22T10:00:00Z", "regressed": True},
        "roles": [{"name": "prefill", "desired": 2, "ready": 2, "updated": 1}],
    }
    told = rollout_of(CHAT, NOW, status, KEPT[::-1])
    assert [(one.number, one.in_force, one.completed, bool(one.diff)) for one in told.revisions] == [
        (3, True, False, False),
        (2, False, True, True),
        (1, False, False, True),
    ]
    assert (told.under_way, told.regressed, told.paused, told.reason) == (True, True, False, "RolloutRegressed")
    assert [(one.role, one.desired, one.updated) for one in told.roles] == [(Role.PREFILL, 2, 1)]
    assert all(step["path"].startswith("/spec/roles") for step in told.revisions[1].diff)


def a_use(*uses: tuple[str, Role, InstanceState, int]) -> PoolUse:
    instances = [
        InstanceUse(id=name, role=role, state=state, bound_sessions=bound, cache_tokens=100, in_flight=1)
        for name, role, state, bound in uses
    ]
    facts = parse_spec({"model": "m"}).facts()
    return PoolUse(facts=facts, instances=instances, attainment=1.0, requests_per_second=4.0, miss_tokens_per_second=4000.0)


P, D, SERVING = Role.PREFILL, Role.DECODE, InstanceState.SERVING
USE = a_use(("p1", P, SERVING, 10), ("p2", P, SERVING, 10), ("d1", D, SERVING, 0), ("d2", D, InstanceState.DRAINING, 0))


def test_going_back_from_an_unfinished_rollout_replaces_only_what_was_updated() -> None:
    status = {
        "currentRevision": KEPT[1].name,
        "updateRevision": KEPT[0].name,
        "roles": [{"name": "prefill", "updated": 1}, {"name": "decode", "updated": 0}],
    }
    effect = rollback_effect(USE, rollback_of("chat", NOW, back(), status))
    assert (effect.instances_removed, effect.sessions_moved, effect.cache_tokens_lost) == (1, 10, 100)
    assert effect.notes == [
        "1 of 2 instances of role prefill is drained and replaced.",
        "No instance of role decode is replaced.",
    ]


def test_going_back_after_a_finished_rollout_replaces_all_of_the_roles_that_change() -> None:
    status = {"currentRevision": KEPT[0].name, "updateRevision": KEPT[0].name, "roles": [{"name": "prefill", "updated": 2}]}
    assert rollback_effect(USE, rollback_of("chat", NOW, back(role=P), status)).instances_removed == 2
    everything = rollback_effect(USE, rollback_of("chat", NOW, back(), status))
    assert (everything.instances_removed, everything.heavy) == (3, True)
    paused = {**back(), "rollout": {"paused": True}}
    assert "nothing is replaced until it is resumed" in rollback_effect(USE, rollback_of("chat", NOW, paused, status)).warnings[-1]


def test_pausing_and_resuming_say_what_they_mean() -> None:
    assert "Outdated instances stay" in rollout_effect(USE, RolloutSpec(paused=True)).notes[0]
    assert "at most 2 above the desired number and 0 missing" in rollout_effect(USE, RolloutSpec(max_surge=2)).notes[0]


def test_a_drained_instance_gives_its_sessions_away_and_the_capacity_left_is_told() -> None:
    effect = drain_effect(USE, "p1")
    assert (effect.sessions_moved, effect.requests_in_flight, effect.victims, effect.heavy) == (10, 1, ["p1"], True)
    assert effect.predicted_attainment is None, "the simulation says what requests get"
    assert effect.notes == ["1 instance of role prefill serves until its successor serves; the number of instances stays the same."]


def test_an_engine_that_nobody_replaces_says_who_serves_meanwhile_or_that_nobody_does() -> None:
    effect = drain_effect(USE, "p1", replaced=False)
    assert (effect.sessions_moved, effect.sessions_lost, effect.victims) == (10, 0, [])
    assert effect.notes == [
        "1 instance of role prefill serves while it is drained. It goes on running, and takes requests again when the drain is cancelled."
    ]
    alone = drain_effect(USE, "d1", replaced=False)
    assert alone.heavy
    assert "every new request will be refused" in alone.warnings[0]
    assert undrain_effect(USE, "d2", replaced=False).notes == ["It takes requests again; sessions that moved stay where they are."]


def test_the_last_that_serves_drains_after_its_successor_came() -> None:
    assert "its successor is started first" in drain_effect(USE, "d1").notes[0]


def test_taking_a_drain_back_brings_no_session_back() -> None:
    assert "stay where they are" in undrain_effect(USE, "d2").notes[0]
    assert "does not drain yet" in undrain_effect(USE, "p1").notes[0]
