"""The Kubernetes API's audit events: which are changes of pools, and which of them made a revision.

The events have all fields that an API server writes at the level RequestResponse, also those that are not read.
"""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.audit.cluster_events import ClusterChange, Seen, actors, changers, read_events
from fairlead_testing.builders.cluster_audit import an_event, an_event_list

START = Seen(version=100, generation=1)


def read(*events: dict[str, Any]) -> list[ClusterChange]:
    return read_events(json.dumps(an_event_list(*events)).encode())[0]


def test_an_edit_and_a_scale_are_read_with_their_users() -> None:
    edit, scale = read(an_event("alice", 120, 2), an_event("bob", 130, None, subresource="scale", agent="kubectl/v1.34.1 (linux/amd64)"))
    assert (edit.actor, edit.uid, edit.version, edit.generation, edit.acted_as) == ("alice", "uid-1", 120, 2, None)
    assert edit.groups == ("team-a", "system:authenticated")
    assert (scale.actor, scale.version, scale.generation, scale.agent) == ("bob", 130, None, "kubectl/v1.34.1 (linux/amd64)")
    assert actors([edit, scale, edit]) == "alice, bob"


def test_whoever_impersonates_is_named_with_whom() -> None:
    (change,) = read(an_event("alice", 120, 2, impersonatedUser={"username": "system:serviceaccount:ci:deploy", "groups": []}))
    assert actors([change]) == "alice as system:serviceaccount:ci:deploy"


@pytest.mark.parametrize(
    "other",
    [
        {"stage": "RequestReceived"},
        {"verb": "get"},
        {"responseStatus": {"metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409}},
        {"requestURI": "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/chat?dryRun=All&fieldManager=kubectl-edit"},
        {"objectRef": {"resource": "pods", "namespace": "default", "name": "chat", "apiVersion": "v1"}},
        {"objectRef": {"resource": "inferencepools", "apiGroup": "fairlead.dev", "apiVersion": "v1alpha1", "subresource": "status"}},
    ],
)
def test_what_changes_no_spec_is_skipped(other: dict[str, Any]) -> None:
    assert read_events(json.dumps(an_event_list(an_event("alice", 120, 2, **other))).encode()) == ([], 0)


@pytest.mark.parametrize("answer", [None, {}, {"metadata": {"uid": "uid-1"}}, {"metadata": {"uid": "a\0", "resourceVersion": "1"}}])
def test_an_event_without_the_object_is_counted(answer: Any) -> None:
    events = an_event_list(an_event("alice", 120, 2, responseObject=answer), an_event("bob", 130, 3))
    found, unusable = read_events(json.dumps(events).encode())
    assert ([one.actor for one in found], unusable) == (["bob"], 1)


@pytest.mark.parametrize("body", [{}, [], {"apiVersion": "audit.k8s.io/v1beta1", "kind": "EventList", "items": []}])
def test_another_body_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput, match=r"send an EventList of audit\.k8s\.io/v1"):
        read_events(json.dumps(body).encode())


def test_of_the_writes_in_between_those_made_a_revision_that_made_a_generation() -> None:
    changes = read(
        an_event("early", 90, 1),
        an_event("operator", 110, 1),  # a finalizer
        an_event("alice", 120, 2),
        an_event("operator", 121, 2),
        an_event("bob", 130, None, subresource="scale"),
        an_event("operator", 131, 3),
        an_event("late", 150, 4),
    )
    assert actors(changers(changes, START, Seen(version=140, generation=3))) == "alice, bob"
    assert actors(changers(changes, START, Seen(version=120, generation=2))) == "alice"
    assert actors(changers(changes, Seen(version=120, generation=2), Seen(version=140, generation=3))) == "bob"
    assert actors(changers(changes, START, Seen(version=115, generation=1))) == ""


def test_a_write_that_changed_nothing_makes_nobody_an_author() -> None:
    changes = read(an_event("alice", 120, 2), an_event("eve", 120, None, subresource="scale"))
    assert actors(changers(changes, START, Seen(version=140, generation=3))) == "alice"


@given(kinds=st.lists(st.sampled_from(["spec", "scale", "labels"]), max_size=12), cuts=st.sets(st.integers(0, 12)))
def test_however_revisions_are_seen_each_change_of_the_spec_has_its_author_once(kinds: list[str], cuts: set[int]) -> None:
    events, states, generation = [], [START], START.generation
    for number, kind in enumerate(kinds):
        generation += kind != "labels"
        version = 101 + number
        scaled = {"subresource": "scale"} if kind == "scale" else {}
        events.append(an_event(f"u{number}", version, None if kind == "scale" else generation, **scaled))
        states.append(Seen(version=version, generation=generation))
    seen = [START, *(state for number, state in enumerate(states[1:]) if number in cuts), states[-1]]
    changes = read(*events)
    found = [one.actor for since, until in itertools.pairwise(seen) for one in changers(reversed(changes), since, until)]
    assert found == [f"u{number}" for number, kind in enumerate(kinds) if kind != "labels"]
