"""Which watch events wake a pool's worker."""

from typing import Any

import kopf

from fairlead_operator.handlers import child_essence, is_news, of_a_pool, pod_essence, pool_essence


def event(document: dict[str, Any], kind: str = "MODIFIED") -> kopf.RawEvent:
    return {"type": kind, "object": document}  # type: ignore[typeddict-item]


def test_the_operators_own_writes_on_a_pool_are_no_news() -> None:
    memo, metadata = kopf.Memo(), {"name": "chat", "generation": 1, "resourceVersion": "1"}
    assert is_news(memo, event({"metadata": metadata}, "ADDED"), pool_essence)
    written = {"metadata": metadata | {"resourceVersion": "2"}, "status": {"replicas": 2}}
    assert not is_news(memo, event(written), pool_essence)
    for change in (
        {"generation": 2},
        {"finalizers": ["fairlead.dev/finalizer"]},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"labels": {"team": "a"}},
        {"annotations": {"note": "x"}},
    ):
        metadata = metadata | change
        assert is_news(memo, event({"metadata": metadata}), pool_essence), change
        assert not is_news(memo, event({"metadata": metadata}), pool_essence), change


def test_a_pods_health_is_news_and_its_annotations_are_not() -> None:
    memo = kopf.Memo()
    ready: dict[str, Any] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
    pod: dict[str, Any] = {"metadata": {"name": "chat-b1", "uid": "u", "annotations": {"fairlead.dev/state": "Pending"}}, "status": {}}
    assert is_news(memo, event(pod, "ADDED"), pod_essence)
    assert is_news(memo, event(pod | {"status": ready}), pod_essence)
    marked = {"metadata": pod["metadata"] | {"annotations": {"fairlead.dev/state": "Serving"}}, "status": ready}
    assert not is_news(memo, event(marked), pod_essence)
    assert is_news(memo, event(marked | {"status": ready | {"containerStatuses": [{"restartCount": 1}]}}), pod_essence)
    assert is_news(memo, event(marked, "DELETED"), pod_essence)


def test_a_childs_status_is_no_news_and_its_owners_are() -> None:
    service: dict[str, Any] = {"metadata": {"name": "chat", "labels": {"fairlead.dev/pool": "chat"}}, "spec": {"clusterIP": "None"}}
    memo = kopf.Memo()
    assert is_news(memo, event(service), child_essence)
    assert not is_news(memo, event(service | {"status": {"loadBalancer": {}}}), child_essence)
    assert is_news(memo, event(service | {"metadata": service["metadata"] | {"ownerReferences": [{"uid": "u"}]}}), child_essence)


def test_an_object_is_its_owners_whatever_its_label_says_and_a_changed_mark_is_news() -> None:
    owner = {"kind": "InferencePool", "name": "chat", "uid": "u"}
    for labels in ({}, {"fairlead.dev/pool": "other"}):
        assert of_a_pool({"labels": labels, "ownerReferences": [owner]})  # type: ignore[arg-type]  # kopf's Meta is a mapping
    assert not of_a_pool({"labels": {"app": "x"}, "ownerReferences": [{"kind": "Deployment", "name": "chat"}]})  # type: ignore[arg-type]
    memo = kopf.Memo()
    metadata: dict[str, Any] = {"name": "chat-b1", "uid": "u", "labels": {"fairlead.dev/pool": "chat"}, "annotations": {}}
    assert is_news(memo, event({"metadata": metadata}, "ADDED"), pod_essence)
    assert is_news(memo, event({"metadata": metadata | {"labels": {"fairlead.dev/pool": "other"}}}), pod_essence)
    for ordinal in ("1", "7"):
        assert is_news(memo, event({"metadata": metadata | {"annotations": {"fairlead.dev/ordinal": ordinal}}}), pod_essence)


def test_objects_do_not_share_what_was_seen_of_them() -> None:
    operator = kopf.Memo()
    one, other = kopf.Memo(operator), kopf.Memo(operator)
    pod = {"metadata": {"name": "p"}, "status": {}}
    assert is_news(one, event(pod), pod_essence)
    assert is_news(other, event(pod), pod_essence)
